"""Callbacks see every event, may stop a run, and are named if they fail."""

import functools
import os
import traceback
from pathlib import Path
from typing import Any

import pytest

from softlook.train import StopTraining
from softlook.train.distributed.world import launch
from softlook.train.events import Evaluated, Event, Finished, Saved, StepLogged, Warned, dispatch
from tests.train.tiny import FAST, assert_same, events_of, make_evaluator, run_training


class StopAt:
    """Records all events, and asks to stop at a step."""

    def __init__(self, step: int, message: str = "", kind: type = StepLogged) -> None:
        self.step, self.message, self.kind, self.events = step, message, kind, list[Event]()

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, self.kind) and event.step == self.step:
            raise StopTraining(self.message)

    @property
    def finished(self) -> Finished:
        (finished,) = events_of(self.events, Finished)
        return finished


def run(folder: Path | None, stop: StopAt, **settings: Any) -> Any:
    return run_training(folder, callback=stop, **{"max_steps": 8, "evaluate": make_evaluator(), **settings})


def test_a_callback_ends_a_run_with_an_evaluation_and_a_checkpoint(tmp_path: Path) -> None:
    stop = StopAt(3, "small enough")
    _, progress = run(tmp_path, stop, evaluate_every=8, save_every=8)
    assert progress.step == 3 and stop.finished.complete and stop.finished.signal is None
    assert stop.finished.reason == "stopped by a callback: small enough"
    assert [event.step for event in events_of(stop.events, Evaluated)] == [3]
    assert [event.step for event in events_of(stop.events, Saved)] == [3]
    assert stop.finished.checkpoint is not None and Path(stop.finished.checkpoint).is_dir()


@pytest.mark.parametrize(("kind", "step"), [(Evaluated, 4), (Saved, 4), (Finished, 8)])
def test_a_callback_may_stop_at_any_event(kind: type, step: int, tmp_path: Path) -> None:
    stop = StopAt(step, kind=kind)
    _, progress = run(tmp_path, stop, evaluate_every=2, save_every=4)
    assert progress.step == step and stop.events[-1] == stop.finished
    assert stop.finished.reason == ("max_steps reached" if step == 8 else "stopped by a callback")


@pytest.mark.parametrize("schedule", ["cosine", "inverse_sqrt"])
def test_a_run_that_a_callback_stopped_resumes_its_schedule_bit_for_bit(schedule: str, tmp_path: Path) -> None:
    optim = {"lr": 1e-2, "warmup": 3, "schedule": schedule}
    evaluation = {"evaluate": None, "optim": FAST.model_copy(update=optim)}
    whole, _ = run(None, StopAt(99), **evaluation)
    run(tmp_path, StopAt(3), **evaluation)
    resumed, progress = run(tmp_path, StopAt(99), **evaluation)
    assert progress.step == 8 and progress.phase_step == 0
    assert_same(resumed, whole)


def test_a_run_stopped_at_its_last_step_is_complete(tmp_path: Path) -> None:
    _, progress = run(tmp_path, StopAt(8))
    assert progress.is_phase_complete


def test_all_callbacks_see_the_events_of_a_run_that_one_of_them_stops() -> None:
    seen: list[Event] = []
    events = (Warned(1, "a"), Warned(2, "b"))
    with pytest.raises(StopTraining):
        dispatch([StopAt(1, kind=Warned), seen.append], *events)
    assert seen == [*events]


def fail(event: Event) -> None:
    raise KeyError("loss")


class Plotter:
    """A callback that is an object."""

    def __call__(self, event: Event) -> None:
        fail(event)


@pytest.mark.parametrize(
    ("callback", "name"), [(fail, "fail"), (Plotter(), "Plotter"), (Plotter().__call__, "Plotter.__call__")]
)
def test_an_error_in_a_callback_names_it(callback: Any, name: str) -> None:
    with pytest.raises(KeyError) as caught:
        dispatch([functools.partial(dispatch, [callback])], Saved(3, "step-3"))
    report = "".join(traceback.format_exception(caught.value))
    assert f"Raised by the callback {name}," in report and report.count("Raised by the callback") == 1
    assert "called with Saved(step=3, path='step-3')." in report


def test_an_error_in_a_callback_ends_the_run_and_keeps_its_checkpoint(tmp_path: Path) -> None:
    def fail_at_four(event: Event) -> None:
        if event.step == 4:
            fail(event)

    with pytest.raises(KeyError, match="loss"):
        run_training(tmp_path, callback=fail_at_four, max_steps=8, save_every=2)
    _, progress = run_training(tmp_path, max_steps=8)
    assert progress.step == 8


def stop_on_rank_zero(folder: Path) -> tuple[int, str]:
    stop = StopAt(3, "enough")
    _, progress = run(folder, stop, evaluate_every=2)
    return progress.step, stop.finished.reason if os.environ["RANK"] == "0" else ""


def test_a_callback_on_rank_zero_stops_all_ranks(tmp_path: Path) -> None:
    assert launch(stop_on_rank_zero, 2, tmp_path) == (3, "stopped by a callback: enough")
