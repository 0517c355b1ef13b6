"""What happened since the last word about the loss."""

import time

from softlook.train.events import Trained
from softlook.train.step import Stepped


class Recent:
    """The steps since then, added up."""

    def __init__(self, window: tuple[float, int] = (0.0, 0)) -> None:
        self._begin(*window)

    def _begin(self, total: float = 0.0, targets: int = 0) -> None:
        self.total, self.targets, self.earlier, self.since = total, targets, targets, time.monotonic()

    @property
    def window(self) -> tuple[float, int]:
        """The summed loss and its targets so far: with it in the checkpoint, a resumed run logs the same losses."""
        return self.total, self.targets

    def add(self, stepped: Stepped) -> None:
        """Take a step in; one that gave no numbers has none to give."""
        if stepped.taken:
            self.total += stepped.loss * stepped.targets
            self.targets += stepped.targets

    def told(self, step: int, *, lr: float, gradient: float, seconds: float) -> Trained:
        """The word, and the beginning of the next one."""
        loss = self.total / max(self.targets, 1)
        speed = (self.targets - self.earlier) / max(time.monotonic() - self.since, 1e-9)
        self._begin()
        return Trained(step, loss, lr, gradient, speed, seconds)
