"""The schedule of a run: it follows steps, the clock, or whichever ends first."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softlook.train.checkpoint.train_state import Progress
from softlook.train.config import OptimizerConfig, TrainingConfig
from softlook.train.events import Evaluated, Event, StepLogged, Warned
from softlook.train.optimizer import SCHEDULES
from softlook.train.schedule import RunClock, RunSchedule
from tests.train.tiny import events_of, run_training

COSINE = OptimizerConfig(lr=1.0, schedule="cosine", warmup=0.1)


def schedule(optim: OptimizerConfig = COSINE, **training: Any) -> RunSchedule:
    return RunSchedule(TrainingConfig(**training), optim)


def rates(run: RunSchedule, seconds: list[float]) -> list[float]:
    """Learning rates of steps that end at these seconds."""
    progress, found = run.begin(Progress()), []
    for step, end in enumerate(seconds):
        found.append(run.learning_rate(progress))
        progress = replace(progress, step=step + 1, seconds=end)
    return found


def test_samples_of_the_output_are_not_scaled_with_the_data() -> None:
    """Final scores on all data take as long as so many evaluations, without their samples."""
    run = schedule(max_minutes=1)
    run.clock.final_evaluations, run.clock.final_seconds = 50.0, 1.0
    run.record_evaluation(run.begin(Progress()), 0.3)
    assert run.reserve == pytest.approx(50 * 0.3 + 1)
    run.clock.sample_seconds = 0.25
    assert run.reserve == pytest.approx(50 * 0.05 + 0.25 + 1)


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_limit_in_steps_gives_the_schedule_of_the_steps(name: Any) -> None:
    run = schedule(OptimizerConfig(lr=0.5, schedule=name, warmup=3), max_steps=20)
    expected = [0.5 * SCHEDULES[name](3, 20)(step) for step in range(1, 21)]
    assert rates(run, [float(n) for n in range(20)]) == expected


@given(st.lists(st.floats(0.2, 4.0), min_size=30, max_size=60))
def test_by_the_clock_the_rate_warms_up_and_decays_whatever_the_speed(durations: list[float]) -> None:
    total = sum(durations)
    ends = [sum(durations[: n + 1]) for n in range(len(durations))]
    found = rates(schedule(max_minutes=total / 60), ends)
    starts = [0.0, *ends[:-1]]
    late = [rate for rate, start in zip(found, starts, strict=True) if start > 0.95 * total]
    early = [rate for rate, start in zip(found, starts, strict=True) if start < 0.02 * total]
    assert all(rate < 0.13 for rate in late)
    assert all(rate < 0.5 for rate in early)
    assert 0 <= min(found) <= max(found) <= 1.0


def test_the_limit_that_ends_first_decides() -> None:
    ends = [float(n + 1) for n in range(100)]
    by_steps = rates(schedule(max_steps=100, max_minutes=100), ends)
    by_clock = rates(schedule(max_steps=10_000, max_minutes=100 / 60), ends)
    assert by_steps[-1] == pytest.approx(0.1, abs=0.01)
    assert by_clock[-1] == pytest.approx(0.1, abs=0.01)


def test_evaluations_take_a_small_share_of_the_time() -> None:
    run = schedule(max_minutes=10)
    progress, spent = run.begin(Progress()), 0.0
    while not run.is_out_of_time(progress):
        progress = replace(progress, step=progress.step + 1, seconds=progress.seconds + 1)
        if run.is_evaluation_due(progress):
            run.record_evaluation(progress, 20.0)
            progress, spent = replace(progress, seconds=progress.seconds + 20), spent + 20
    assert 0 < spent <= 0.1 * 600
    assert progress.seconds + run.reserve <= 600


def test_one_slow_evaluation_does_not_end_a_run_early() -> None:
    run = RunSchedule(TrainingConfig(max_minutes=1), COSINE, RunClock(final_evaluations=4.0))
    progress = run.begin(Progress())
    for seconds in (8.0, 0.5, 0.5):
        run.record_evaluation(progress, seconds)
    assert run.reserve == 2.0


def test_early_evaluations_follow_one_another_closely() -> None:
    run = schedule(max_minutes=10)
    progress, evaluated = run.begin(Progress()), list[float]()
    while not run.is_out_of_time(progress):
        progress = replace(progress, step=progress.step + 1, seconds=progress.seconds + 0.5)
        if run.is_evaluation_due(progress):
            run.record_evaluation(progress, 0.1)
            evaluated.append(progress.seconds)
    assert evaluated[0] <= 0.015 * 600
    gaps = [later - earlier for earlier, later in zip(evaluated, evaluated[1:], strict=False)]
    assert all(gap <= 0.55 * earlier + 6 for gap, earlier in zip(gaps, evaluated, strict=False))
    assert max(gaps) <= 61 and len(evaluated) <= 25


def test_set_up_and_the_final_evaluation_count_against_the_time_limit(tmp_path: Path) -> None:
    began = time.monotonic() - 1.0

    def evaluate(model: Any) -> dict[str, float]:
        time.sleep(0.1)
        return {"loss": 1.0}

    clock = RunClock(began, final_evaluations=3.0)
    _, progress = run_training(tmp_path, max_minutes=3 / 60, evaluate=evaluate, clock=clock)
    assert progress.seconds == 3.0
    assert time.monotonic() - began < 3.3


def test_a_finished_run_with_more_steps_warms_up_again(tmp_path: Path) -> None:
    optim = OptimizerConfig(lr=0.01, schedule="cosine", warmup=2)
    run_training(tmp_path, optim=optim, max_steps=10)
    events: list[Event] = []
    _, progress = run_training(tmp_path, events, optim=optim, max_steps=30)
    found = [event.lr for event in events_of(events, StepLogged)]
    assert (progress.step, progress.phase_step) == (30, 10)
    assert found[0] == pytest.approx(0.005)
    assert max(found) == pytest.approx(0.01)
    assert found[-1] == pytest.approx(0.001)


def test_a_finished_run_with_more_minutes_trains_on(tmp_path: Path) -> None:
    optim = COSINE.model_copy(update={"lr": 0.01})
    _, first = run_training(tmp_path, optim=optim, max_minutes=0.5 / 60)
    _, again = run_training(tmp_path, optim=optim, max_minutes=0.5 / 60)
    _, longer = run_training(tmp_path, optim=optim, max_minutes=2 / 60)
    assert again.step == first.step
    assert longer.step > first.step + 1
    assert longer.phase_step == first.step


def test_a_run_that_learns_nothing_starts_again_at_a_lower_rate() -> None:
    events: list[Event] = []
    stuck = {"evaluate": lambda model: {"loss": 5.0}, "uninformed_loss": 4.0}
    run_training(None, events, max_minutes=2 / 60, ema_decay=0.9, **stuck)
    warnings = [event.message for event in events_of(events, Warned)]
    assert 1 <= len(warnings) <= 2
    assert "has not learned anything yet" in warnings[0]
    assert len(events_of(events, Evaluated)) >= 3
