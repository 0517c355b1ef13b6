"""A table as a model reads it, and what else a model can learn from."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

TOGETHER = {"cpu": 256, "cuda": 1 << 16}
"""Rows, times members, that are looked at together where nothing is learned. On a CPU more would leave its caches,
and the system would hand out new pages for every step on the way."""
LEAST = 16
"""Rows are looked at in multiples of this; what is short is filled up with the last one."""


@dataclass(frozen=True)
class Rows:
    """A table on a device: numbers (N, J), categories (N, J), and where known what is wanted and weights (N,)."""

    numbers: Tensor
    categories: Tensor
    wanted: Tensor | None = None
    weight: Tensor | None = None

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, which: Tensor | slice) -> "Rows":
        """Some of the rows."""
        return Rows(*(None if part is None else part[which] for part in self.parts()))  # pyright: ignore[reportArgumentType]

    def to(self, device: torch.device) -> "Rows":
        return Rows(*(None if part is None else part.to(device) for part in self.parts()))  # pyright: ignore[reportArgumentType]

    def evened(self) -> "Rows":
        """The same, with weights of 1 on average."""
        assert self.weight is not None
        return replace(self, weight=self.weight / self.weight.mean())

    def batches(self, size: int, dice: torch.Generator, start: int = 0) -> Iterator["Rows"]:
        """All rows once, so many at a time, in an order of chance, from behind the first `start` of them."""
        order = torch.randperm(len(self), generator=dice)[start:].to(self.numbers.device)
        return (self.take(which) for which in order.split(size))

    def split(self, size: int) -> Iterator["Rows"]:
        """So many rows at a time, in their order."""
        return (self.take(slice(at, at + size)) for at in range(0, len(self), size))

    def at_once(self, model: nn.Module) -> int:
        """How many rows a model looks at together: many where there is room."""
        members = getattr(model.config, "members", 1)
        return max(1, TOGETHER.get(self.numbers.device.type, TOGETHER["cpu"]) // LEAST // members) * LEAST

    def parts(self) -> tuple[Tensor | None, ...]:
        return self.numbers, self.categories, self.wanted, self.weight


@runtime_checkable
class Supply(Protocol):
    """What a model can learn from: `Rows`, or rows that lie elsewhere."""

    def __len__(self) -> int: ...
    def evened(self) -> "Supply": ...
    def batches(self, size: int, dice: torch.Generator, start: int = 0) -> Iterator[Rows]: ...


def together(rows: Sequence[Rows]) -> Rows:
    """Pieces as one."""
    parts = zip(*map(Rows.parts, rows), strict=True)
    return Rows(*(_cat([part for part in found if part is not None]) for found in parts))  # pyright: ignore[reportArgumentType]


def _cat(parts: list[Tensor]) -> Tensor | None:
    return torch.cat(parts) if parts else None
