"""A table as a model reads it, and what else a model can learn from."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

TOGETHER = 256
"""Rows, times members, that are looked at together where nothing is learned. On a CPU more would leave its caches,
and the system would hand out new pages for every step on the way."""
VALUES = 1 << 25
"""A GPU wants more: tokens of so many values together, which is some 2 GB with all that a block makes of them."""
LEAST = 16
"""Rows are looked at in multiples of this; what is short is filled up with the last one."""
AT_A_TIME = 4096
"""Rows that are asked for at a time where some are drawn."""


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
        config: Any = model.config
        rows = TOGETHER
        if self.numbers.device.type == "cuda":
            rows = VALUES // (config.dim * (1 + self.numbers.shape[1] + self.categories.shape[1]))
        return max(1, rows // LEAST // getattr(config, "members", 1)) * LEAST

    def mixed(self, chosen: Tensor, others: "Rows") -> "Rows":
        """Each chosen cell as another row has it; `chosen` is (N, J) or (J,), numbers before categories."""
        numbers, categories = chosen.tensor_split([self.numbers.shape[1]], -1)
        return replace(
            self,
            numbers=torch.where(numbers, others.numbers, self.numbers),
            categories=torch.where(categories, others.categories, self.categories),
        )

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


def some_rows(supply: Supply, most: int, dice: torch.Generator) -> Rows:
    """Rows by chance; all of them, in an order of chance, where there are no more than `most`."""
    found: list[Rows] = []
    for rows in supply.batches(min(most, len(supply), AT_A_TIME), dice):
        found.append(rows)
        if sum(map(len, found)) >= most:
            break
    return together(found).take(slice(most))


def _cat(parts: list[Tensor]) -> Tensor | None:
    return torch.cat(parts) if parts else None
