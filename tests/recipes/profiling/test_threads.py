"""The number of CPU threads of a run: the faster one, unless it is given."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from softlook.recipes import train_classification
from softlook.recipes.profiling.threads import ENVIRONMENT, choose_threads, use_threads
from softlook.train.events import Event, StepLogged
from tests.recipes.small import classification_config

THREADS = 3


@pytest.fixture(autouse=True)
def _several_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Three threads by default, and none of the variables that set their number."""
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    with use_threads(THREADS):
        yield


class Clock:
    """A clock that stands still between steps: other processes do not change the measurement."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("one", "all", "expected"), [(0.01, 0.05, 1), (0.05, 0.01, THREADS), (0.99, 1.0, THREADS), (0.9, 1.0, 1)]
)
def test_one_thread_is_chosen_if_it_is_clearly_faster(
    one: float, all: float, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr("softlook.recipes.profiling.threads.time", clock)

    def step() -> None:
        clock.now += one if torch.get_num_threads() == 1 else all

    assert choose_threads(step) == expected
    assert torch.get_num_threads() == THREADS


@pytest.mark.parametrize("name", ENVIRONMENT)
def test_a_number_in_the_environment_is_kept(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, str(THREADS))
    assert choose_threads(lambda: pytest.fail("nothing has to be measured")) == THREADS


def test_with_one_thread_nothing_is_measured() -> None:
    assert choose_threads(lambda: pytest.fail("nothing has to be measured"), threads=1) == 1


def test_a_slow_step_is_measured_once_with_each_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("softlook.recipes.profiling.threads.MAX_SECONDS", 0.0)
    counts: list[int] = []
    choose_threads(lambda: counts.append(torch.get_num_threads()))
    assert counts == [1, THREADS]


def test_threads_are_restored_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), use_threads(1):
        assert torch.get_num_threads() == 1
        raise ZeroDivisionError
    assert torch.get_num_threads() == THREADS


def test_none_changes_nothing() -> None:
    with use_threads(None):
        assert torch.get_num_threads() == THREADS


def test_a_run_uses_the_chosen_number_and_restores_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("softlook.recipes.profiling.step_benchmark.choose_threads", lambda step: 2)
    counts: set[int] = set()

    def record(event: Event) -> None:
        if isinstance(event, StepLogged):
            counts.add(torch.get_num_threads())

    train_classification(classification_config(tmp_path), [record])
    assert counts == {2}
    assert torch.get_num_threads() == THREADS
