"""What a beam search on a GPU found, on its way to the host, and as plain values."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from softlook.decode.search import Hypothesis


@dataclass
class Outcome:
    """What some sequences found, on its way to the host."""

    numbers: Tensor
    scores: Tensor
    lengths: Tensor
    last: Tensor
    totals: Tensor
    said: Tensor
    own: Tensor
    arrived: "torch.cuda.Event | None"

    @property
    def is_there(self) -> bool:
        return self.arrived is None or self.arrived.query()

    def failed(self, sequences: int) -> list[int]:
        """The numbers of sequences whose logits were no distribution, on the way to the best that they could find."""
        if self.arrived is not None:
            self.arrived.synchronize()
        return [number for number in self.numbers[self.totals.isnan().any(1)].tolist() if number < sequences]

    def hypotheses(self, ends: tuple[int, ...], sequences: int) -> list[tuple[int, list[Hypothesis]]]:
        """Of each sequence that is somebody's, its number and what it found, best first."""
        if self.arrived is not None:
            self.arrived.synchronize()
        with collecting_later():
            made = list(map(_hypothesis, *(part.flatten(0, 1).tolist() for part in self._columns(ends))))
            several = [made[at : at + self.scores.shape[1]] for at in range(0, len(made), self.scores.shape[1])]
            return [
                (number, [one for one in found if one.score != -torch.inf])
                for number, found in zip(self.numbers.tolist(), several, strict=True)
                if number < sequences
            ]

    def _columns(self, ends: tuple[int, ...]) -> tuple[Tensor, ...]:
        """What there is to say of each, (R, K) or (R, K, ...)."""
        ended = torch.isin(self.last, torch.tensor(ends))
        lengths = torch.stack([self.lengths - ended.long(), self.lengths], -1)
        return self.scores, self.own.double().sum(-1), lengths, torch.where(ended, self.last, -1), self.said, self.own


def _hypothesis(
    score: float, total: float, lengths: list[int], end: int, said: list[int], own: list[float]
) -> Hypothesis:
    words, all_words = lengths
    return Hypothesis(score, said[:words], total, own[:all_words], None if end < 0 else end)


@contextmanager
def collecting_later() -> Iterator[None]:
    """Thousands of small lists are made, none of which is garbage: nobody has to look through all others meanwhile."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def on_host(part: Tensor) -> Tensor:
    """A copy on its way to the host's memory; nobody waits for it."""
    if part.device.type != "cuda":
        return part.clone()
    return torch.empty(part.shape, dtype=part.dtype, pin_memory=True).copy_(part, non_blocking=True)


def event_on(device: torch.device) -> "torch.cuda.Event | None":
    """When all that was asked for so far is done; None where it is already."""
    if device.type != "cuda":
        return None
    event = torch.cuda.Event()
    event.record()
    return event
