"""Training runs that take turns: each in a thread of its own, of which one at a time goes on for a few steps.

A run is never begun anew, so that data, optimizer and caches are as they are in the middle of any long run; and what
else this machine has to do falls on all of them alike.
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
    """A run that is called as `run(lane)`, and that calls `lane.lap_done(loss)` after every few steps."""

    name: str
    run: Callable[["Lane"], object]
    laps: list[Lap] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.may_go, self.has_stopped = threading.Semaphore(0), threading.Semaphore(0)
        self.fault: BaseException | None = None
        self.is_over = False
        self.since = 0.0
        self.thread = threading.Thread(target=self._all, name=self.name, daemon=True)

    def lap_done(self, loss: float) -> None:
        """Called by the run: here it waits for its next turn."""
        self.laps.append(Lap(time.perf_counter() - self.since, loss))
        self._wait(self.has_stopped)

    def go_on(self) -> None:
        """Called from outside: the run makes its next lap."""
        if not self.thread.is_alive() and not self.is_over:
            self.thread.start()
        self.may_go.release()
        self.has_stopped.acquire()
        if self.fault is not None:
            raise self.fault

    def _wait(self, first: threading.Semaphore | None = None) -> None:
        if first is not None:
            first.release()
        self.may_go.acquire()
        self.since = time.perf_counter()

    def _all(self) -> None:
        self._wait()
        try:
            self.run(self)
        except BaseException as fault:
            self.fault = fault
        self.is_over = True
        self.has_stopped.release()


def in_turn(lanes: Sequence[Lane]) -> None:
    """All laps of all runs, in shuffled order within each round, until each is over."""
    order = random.Random(0)
    while going := [lane for lane in lanes if not lane.is_over]:
        for lane in order.sample(going, len(going)):
            lane.go_on()
