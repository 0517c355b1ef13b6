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
class Lap:
    """A few steps of one run."""

    seconds: float
    loss: float


@dataclass
class Lane:
    """A run: `run(lane)` calls `lane.lap_done(loss)` after every few steps."""

    name: str
    run: Callable[["Lane"], object]
    laps: list[Lap] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.may_go, self.has_stopped = threading.Semaphore(0), threading.Semaphore(0)
        self.error: BaseException | None = None
        self.is_over = False
        self.since = 0.0
        self.thread = threading.Thread(target=self._all, name=self.name, daemon=True)

    def lap_done(self, loss: float) -> None:
        """Called by the run: record the lap and wait for the next turn."""
        self.laps.append(Lap(time.perf_counter() - self.since, loss))
        self._wait(self.has_stopped)

    def run_lap(self) -> None:
        """Let the run complete its next lap."""
        if not self.thread.is_alive() and not self.is_over:
            self.thread.start()
        self.may_go.release()
        self.has_stopped.acquire()
        if self.error is not None:
            raise self.error

    def _wait(self, first: threading.Semaphore | None = None) -> None:
        if first is not None:
            first.release()
        self.may_go.acquire()
        self.since = time.perf_counter()

    def _all(self) -> None:
        self._wait()
        try:
            self.run(self)
        except BaseException as error:
            self.error = error
        self.is_over = True
        self.has_stopped.release()


def interleave(lanes: Sequence[Lane]) -> None:
    """Run all lanes to the end, one lap each per round in random order."""
    order = random.Random(0)
    while going := [lane for lane in lanes if not lane.is_over]:
        for lane in order.sample(going, len(going)):
            lane.run_lap()
