"""How far a run has got: all that has to be known, beside the weights, to go on as if nothing had happened."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from softlook.train.batches import Place


@dataclass(frozen=True)
class Progress:
    """Where a run stands after a step."""

    step: int = 0
    place: Place = field(default_factory=Place)
    seconds: float = 0.0
    """Spent so far, over all the times it was started."""
    best: float | None = None
    """The smallest held-out loss, and when it was seen."""
    best_step: int = 0
    looked: int = 0
    """The step of the last look at the held-out data."""
    waited: int = 0
    """Looks since the best one."""
    skipped: int = 0
    """Steps in a row that gave no numbers."""
    parts: int = 1
    """How many pieces each batch is cut into, so that one fits into memory."""
    window: tuple[float, int] = (0.0, 0)
    """The summed loss since the last log line, and the number of its targets."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(content: dict[str, Any]) -> "Progress":
        window = tuple(content.get("window", (0.0, 0)))
        return Progress(**{**content, "place": Place(**content["place"]), "window": window})

    def after_look(self, loss: float) -> "Progress":
        """After a look at the held-out data."""
        if not math.isnan(loss) and (self.best is None or loss < self.best):
            return replace(self, looked=self.step, best=loss, best_step=self.step, waited=0)
        return replace(self, looked=self.step, waited=self.waited + 1)


def dice(device: torch.device) -> dict[str, Tensor]:
    """The state of everything in torch that rolls dice for a model on `device`."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    if device.type == "mps":
        states["mps"] = torch.mps.get_rng_state()
    return states


def set_dice(states: dict[str, Tensor], device: torch.device) -> None:
    """Roll on from there. A device that has no state among them keeps its own."""
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
    if device.type == "mps" and "mps" in states:
        torch.mps.set_rng_state(states["mps"])


@contextmanager
def dice_kept(device: torch.device) -> Iterator[None]:
    """Whatever is rolled inside, the dice lie afterwards as they lay before."""
    before = dice(device)
    try:
        yield
    finally:
        set_dice(before, device)
