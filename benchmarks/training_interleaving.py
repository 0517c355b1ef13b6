"""Interleaved training runs: one thread each, one running at a time for a few steps.

Runs are never restarted, so that data, optimizer and caches are as in the middle of a long run, and other load on the
machine affects all of them equally.
"""

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass
class Turn:
    """A few steps of one run."""

    seconds: float
    loss: float


@dataclass
class InterleavedRun:
    """A training run in its own thread: `train(run)` calls `run.end_turn(loss)` after every few steps."""

    name: str
    train: Callable[["InterleavedRun"], object]
    turns: list[Turn] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.may_run, self.has_paused = threading.Semaphore(0), threading.Semaphore(0)
        self.error: BaseException | None = None
        self.is_finished = False
        self.turn_start = 0.0
        self.thread = threading.Thread(target=self._run_thread, name=self.name, daemon=True)

    def end_turn(self, loss: float) -> None:
        """Called in the thread: record the turn and wait for the next one."""
        self.turns.append(Turn(time.perf_counter() - self.turn_start, loss))
        self.has_paused.release()
        self._wait()

    def run_turn(self) -> None:
        """Let the thread run its next turn."""
        if not self.thread.is_alive() and not self.is_finished:
            self.thread.start()
        self.may_run.release()
        self.has_paused.acquire()
        if self.error is not None:
            raise self.error

    def _wait(self) -> None:
        self.may_run.acquire()
        self.turn_start = time.perf_counter()

    def _run_thread(self) -> None:
        self._wait()
        try:
            self.train(self)
        except BaseException as error:
            self.error = error
        self.is_finished = True
        self.has_paused.release()


def interleave(runs: Sequence[InterleavedRun]) -> None:
    """Run all runs to the end, one turn each per round in random order."""
    rng = random.Random(0)
    while active := [run for run in runs if not run.is_finished]:
        for run in rng.sample(active, len(active)):
            run.run_turn()
