"""Asked to stop, a run finishes its step, saves, and says so; asked twice, it is gone at once."""

import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from softlook.train import snapshots
from softlook.train.events import Evaluated, Finished, Saved
from softlook.train.objectives import language
from softlook.train.stop import ASKING, Interrupted, Stop
from tests.train.tiny import assert_same, assert_same_place, look, said, trained

NAMES = [number.name for number in ASKING]


def once(action: Any, at: int) -> Any:
    """Does `action` at the so-manieth call, before what is really called."""
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
@pytest.mark.parametrize("moment", ["a step", "a look", "a save"])
def test_whatever_it_is_busy_with_a_run_that_is_asked_to_stop_saves_and_can_go_on(
    name: str, moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"steps": 8, "evaluate_every": 2, "save_every": 2, "average": 0.9}
    whole, unbroken = trained(tmp_path / "whole", evaluate=look(), **settings)
    ask = once(lambda: signal.raise_signal(signal.Signals[name]), at=2)
    objective, evaluate = language(), look()
    heard: list[Any] = []
    with monkeypatch.context() as patch:
        if moment == "a save":
            patch.setattr(snapshots, "write_manifest", ask(snapshots.write_manifest))
        parts = {"objective": ask(objective) if moment == "a step" else objective}
        parts["evaluate"] = ask(evaluate) if moment == "a look" else evaluate
        trained(tmp_path / "run", heard, **parts, **settings)
    done = heard[-1]
    assert isinstance(done, Finished)
    assert (done.signal, done.complete, done.reason) == (name, False, f"stopped by {name}")
    assert done.step == (2 if moment == "a step" else 4)
    assert said(heard, Saved)[-1].step == done.step
    again, progress = trained(tmp_path / "run", heard, evaluate=evaluate, **settings)
    assert heard[-1].complete
    assert [event.step for event in said(heard, Evaluated)] == [2, 4, 6, 8]
    assert_same(again, whole)
    assert_same_place(progress, unbroken)


def test_asked_twice_it_quits_at_once(tmp_path: Path) -> None:
    def objective(model: nn.Module, batch: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        pytest.fail("it went on")

    heard: list[Any] = []
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path, heard, steps=3, objective=objective)
    assert not said(heard, Finished)


def test_a_look_is_broken_off_at_once(tmp_path: Path) -> None:
    def endless(model: nn.Module) -> dict[str, float]:
        signal.raise_signal(signal.SIGTERM)
        pytest.fail("it looked on")

    heard: list[Any] = []
    _, progress = trained(tmp_path, heard, steps=3, evaluate=endless, evaluate_every=2)
    assert (progress.step, progress.looked) == (2, 0)
    assert heard[-1].signal == "SIGTERM"


def test_the_echo_of_a_signal_is_not_a_second_one() -> None:
    with Stop(echo=60.0).listening() as stop:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        assert stop.asked == "SIGINT"


def test_signals_are_heard_by_others_before_and_after() -> None:
    before = [signal.getsignal(number) for number in ASKING]
    with Stop().listening() as stop:
        assert all(signal.getsignal(number) == stop._ask for number in ASKING)
    assert [signal.getsignal(number) for number in ASKING] == before


def test_in_another_thread_a_run_goes_on_without_listening() -> None:
    ended: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=lambda: ended.append(trained(steps=2)[1].step))
    thread.start()
    thread.join()
    assert ended == [2]
    assert signal.getsignal(signal.SIGINT) is before


def test_only_what_may_be_broken_off_is() -> None:
    with Stop().listening() as stop:
        signal.raise_signal(signal.SIGTERM)
        assert stop.asked == "SIGTERM"
        with pytest.raises(Interrupted), stop.breaking_off():
            pytest.fail("it was begun although somebody had asked")
