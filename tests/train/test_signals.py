"""On a signal, a run finishes its step and saves a checkpoint; a second signal ends it at once."""

import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from softlook.train.checkpoint import checkpoint_manager
from softlook.train.events import Evaluated, Finished, Saved
from softlook.train.objectives import causal_lm
from softlook.train.signals import SIGNALS, GracefulStop, Interrupted
from tests.train.tiny import assert_same, assert_same_progress, events_of, make_evaluator, run_training

NAMES = [number.name for number in SIGNALS]


def once(action: Any, at: int) -> Any:
    """Wrap a function so that its `at`-th call runs `action` first."""
    calls = 0

    def wrap(real: Any) -> Any:
        def call(*args: Any, **more: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == at:
                action()
            return real(*args, **more)

        return call

    return wrap


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("moment", ["a step", "an evaluation", "a save"])
def test_a_signal_at_any_moment_saves_and_the_run_resumes(
    name: str, moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"max_steps": 8, "evaluate_every": 2, "save_every": 2, "ema_decay": 0.9}
    expected, expected_progress = run_training(tmp_path / "uninterrupted", evaluate=make_evaluator(), **settings)
    with_signal = once(lambda: signal.raise_signal(signal.Signals[name]), at=2)
    objective, evaluate = causal_lm(), make_evaluator()
    events: list[Any] = []
    with monkeypatch.context() as patch:
        if moment == "a save":
            patch.setattr(checkpoint_manager, "write_manifest", with_signal(checkpoint_manager.write_manifest))
        parts = {"objective": with_signal(objective) if moment == "a step" else objective}
        parts["evaluate"] = with_signal(evaluate) if moment == "an evaluation" else evaluate
        run_training(tmp_path / "run", events, **parts, **settings)
    done = events[-1]
    assert isinstance(done, Finished)
    assert (done.signal, done.complete, done.reason) == (name, False, f"stopped by {name}")
    assert done.step == (2 if moment == "a step" else 4)
    assert events_of(events, Saved)[-1].step == done.step
    resumed, progress = run_training(tmp_path / "run", events, evaluate=evaluate, **settings)
    assert events[-1].complete
    assert [event.step for event in events_of(events, Evaluated)] == [2, 4, 6, 8]
    assert_same(resumed, expected)
    assert_same_progress(progress, expected_progress)


def test_a_second_signal_raises_keyboard_interrupt(tmp_path: Path) -> None:
    def objective(model: nn.Module, batch: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        pytest.fail("training continued")

    events: list[Any] = []
    with pytest.raises(KeyboardInterrupt):
        run_training(tmp_path, events, max_steps=3, objective=objective)
    assert not events_of(events, Finished)


def test_a_signal_interrupts_an_evaluation(tmp_path: Path) -> None:
    def endless(model: nn.Module) -> dict[str, float]:
        signal.raise_signal(signal.SIGTERM)
        pytest.fail("the evaluation continued")

    events: list[Any] = []
    _, progress = run_training(tmp_path, events, max_steps=3, evaluate=endless, evaluate_every=2)
    assert (progress.step, progress.last_eval_step) == (2, 0)
    assert events[-1].signal == "SIGTERM"


def test_debounced_signals_are_ignored() -> None:
    with GracefulStop(debounce=60.0).install() as stop:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        assert stop.received == "SIGINT"


def test_previous_handlers_are_restored() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with GracefulStop().install() as stop:
        assert all(signal.getsignal(number) == stop._handle for number in SIGNALS)
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_no_handlers_outside_the_main_thread() -> None:
    steps: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=lambda: steps.append(run_training(max_steps=2)[1].step))
    thread.start()
    thread.join()
    assert steps == [2]
    assert signal.getsignal(signal.SIGINT) is before


def test_only_interruptible_blocks_are_interrupted() -> None:
    with GracefulStop().install() as stop:
        signal.raise_signal(signal.SIGTERM)
        assert stop.received == "SIGTERM"
        with pytest.raises(Interrupted), stop.interruptible():
            pytest.fail("the block started after a signal")
