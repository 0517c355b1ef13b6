"""Columns of numbers, and of values that have an order."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from softlook.base.errors import ConfigError
from softlook.tabular.sources.arrow import pc
from softlook.tabular.sources.cells import Cells
from softlook.tabular.sources.objects import array_of
from softlook.tabular.wording import named, share, told

LARGEST = float(np.finfo(np.float32).max)
FAR = 256
"""A column this many times farther from zero than it is wide is told from its middle, lest float32 blur it."""
HUGE, TINY = 1e30, 1e-30


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers. It stays as it is, unless float32 would blur it or could not hold it."""

    name: str
    offset: float = 0.0
    unit: float = 1.0
    missing: float = 0.0
    """The share of cells that are missing."""
    always: float | None = None
    """The only value, where there is but one."""
    how: str = ""
    """By what the column was taken for numbers, where that is worth saying."""

    kind: ClassVar[Literal["number"]] = "number"
    size: ClassVar[None] = None
    slots = ("",)

    @classmethod
    def learn(cls, cells: Cells, *, how: str = "") -> "NumberColumn":
        """What a column of numbers is like."""
        numbers = cells.numbers()
        present = numbers[~np.isnan(numbers)]
        missing = share(len(numbers) - len(present), len(numbers))
        if not len(present):
            return cls(cells.name, missing=1.0, how=how)
        lowest, highest = float(present.min()), float(present.max())
        offset, unit = _fitted(lowest, highest)
        return cls(cells.name, offset, unit, missing, lowest if lowest == highest else None, how)

    @property
    def is_plain(self) -> bool:
        """Whether float32 holds the numbers as they are."""
        return self.offset == 0.0 and self.unit == 1.0

    def encode(self, cells: Cells) -> np.ndarray:
        """(N, 1) float32, NaN where missing."""
        if self.missing == 1.0 and cells.sort not in ("number", "boolean"):
            return np.full((len(cells), 1), np.nan, np.float32)  # nothing is known of it, so nothing is wrong with it
        return self.encode_numbers(cells.numbers())[:, None]

    def encode_numbers(self, numbers: np.ndarray) -> np.ndarray:
        """float64 as float32."""
        if not self.is_plain:
            with np.errstate(over="ignore"):
                numbers = (numbers - self.offset) / self.unit
        return np.clip(numbers, -LARGEST, LARGEST).astype(np.float32)

    def told(self) -> str:
        """A line for people."""
        only = "" if self.always is None else f"always {self.always:g}"
        return told(self.name, self.kind, self.how, only, missing=self.missing)

    def facts(self) -> dict[str, Any]:
        """What `NumberColumn(**facts)` is made of."""
        return vars(self).copy()


def _fitted(lowest: float, highest: float) -> tuple[float, float]:
    farthest, width = max(abs(lowest), abs(highest)), highest / 2 - lowest / 2
    offset = lowest + width if width > 0 and farthest > FAR * 2 * width else 0.0
    largest = width if offset else farthest
    return offset, largest if largest > HUGE or 0 < largest < TINY else 1.0


@dataclass(frozen=True)
class OrdinalColumn:
    """A column of values that have an order: each is its rank, 0, 1, 2, ..."""

    name: str
    values: tuple[str, ...]
    missing: float = 0.0

    kind: ClassVar[Literal["ordinal"]] = "ordinal"
    size: ClassVar[None] = None
    slots = ("",)

    @classmethod
    def learn(cls, cells: Cells, order: Sequence[Any] | None) -> "OrdinalColumn":
        """The order is told, or the table's own."""
        values = order_of(cells, order)
        found = cells.words()
        unknown = [word for word in found.values.to_pylist() if word not in set(values)]
        if unknown:
            raise ConfigError(
                f"ordinal: {cells.name!r} holds {named(unknown)}, which its order does not name. "
                f"It names {named(values)}"
            )
        return cls(cells.name, values, share(int((found.codes < 0).sum()), len(cells)))

    def encode(self, cells: Cells) -> np.ndarray:
        """(N, 1) float32: ranks, NaN where missing or of no known rank."""
        found = cells.words()
        ranks = pc.index_in(found.values, value_set=pa.array(self.values, pa.large_string()))
        table = np.append(ranks.cast(pa.float32()).to_numpy(zero_copy_only=False), np.float32(np.nan))
        return table.astype(np.float32)[found.codes][:, None]

    def told(self) -> str:
        """A line for people."""
        return told(
            self.name, self.kind, " < ".join(self.values[:6]) + " < ..." * (len(self.values) > 6), missing=self.missing
        )

    def facts(self) -> dict[str, Any]:
        """What `OrdinalColumn(**facts)` is made of."""
        return vars(self).copy()


def order_of(cells: Cells, order: Sequence[Any] | None) -> tuple[str, ...]:
    """The values of a column in order, as words."""
    if order is None and cells.order is None:
        raise ConfigError(
            f"kinds: {cells.name!r} is ordinal, in what order? Say ordinal={{{cells.name!r}: [low, ..., high]}}"
        )
    values = cells.order if order is None else array_of(cells.name, list(order))
    words = Cells(cells.name, values).words()
    listed = words.values.take(pa.array(words.codes[words.codes >= 0])).to_pylist()
    if len(set(listed)) < len(words.codes) or not listed:
        raise ConfigError(f"ordinal: the order of {cells.name!r} names a value twice, a missing one, or none at all")
    return tuple(listed)
