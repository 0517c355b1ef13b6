"""One-hot columns: one choice told in several columns, each 0 or 1, is read as the one category that it is."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from softlook.tabular.encoding.categories import FIRST, MISSING, RARE
from softlook.tabular.encoding.columns import Columns, Encoded, Slot
from softlook.tabular.wording import told


@dataclass(frozen=True)
class Choices:
    """The slots of a table that tell choices together. Each is one category more, behind all others."""

    groups: tuple[tuple[int, ...], ...]
    """Places among all slots, numbers before categories."""
    numbers: int
    """How many slots are numbers."""

    @staticmethod
    def found(columns: Columns, encoded: Encoded) -> "Choices":
        """Slots that are 0 or 1 throughout, one after the other, of which each row has a 1 in exactly one."""
        numbers = encoded.numbers.shape[1]
        set_in = {place: _set(columns, encoded, place) for place in range(len(columns.slots))}
        open_ = [place for place, cells in set_in.items() if cells is not None and cells.any() and not cells.all()]
        groups = list[tuple[int, ...]]()
        while open_:
            count = _complete([set_in[place] for place in open_])  # pyright: ignore[reportArgumentType]
            if count:
                groups.append(tuple(open_[:count]))
            open_ = open_[count or 1 :]
        return Choices(tuple(groups), numbers)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many codes each choice has."""
        return tuple(FIRST + len(group) for group in self.groups)

    def left(self, slots: int) -> list[int]:
        """The slots that stay as they are."""
        taken = {place for group in self.groups for place in group}
        return [place for place in range(slots) if place not in taken]

    def applied(self, encoded: Encoded) -> Encoded:
        """The same rows with choices in place of their columns."""
        if not self.groups:
            return encoded
        left = self.left(self.numbers + encoded.categories.shape[1])
        numbers = encoded.numbers[:, [place for place in left if place < self.numbers]]
        categories = encoded.categories[:, [place - self.numbers for place in left if place >= self.numbers]]
        codes = [self._codes(encoded, group) for group in self.groups]
        return Encoded(numbers, np.column_stack([categories, *codes]))

    def _codes(self, encoded: Encoded, group: tuple[int, ...]) -> np.ndarray:
        """As all categories have them: a cell is missing; not exactly one is 1; the first column is 1, and so on."""
        cells = np.stack([_cells(encoded, place, self.numbers) for place in group], 1)
        is_one = cells == 1
        codes = np.where((is_one | (cells == 0)).all(1) & (is_one.sum(1) == 1), FIRST + is_one.argmax(1), RARE)
        return np.where(np.isnan(cells).any(1), MISSING, codes).astype(np.int64)

    def told(self, slots: Sequence[Slot]) -> list[str]:
        """A line about each."""
        names = [[slots[place].column for place in group] for group in self.groups]
        return [told(f"{own[0]} … {own[-1]}", f"one choice, told in {len(own)} columns") for own in names]


def _set(columns: Columns, encoded: Encoded, place: int) -> np.ndarray | None:
    """Of a slot that is 0 or 1 throughout, where it is 1."""
    numbers, slot = encoded.numbers.shape[1], columns.slots[place]
    if columns.kinds[slot.column] != ("number" if place < numbers else "boolean"):
        return None
    cells = _cells(encoded, place, numbers)
    is_one = cells == 1
    return is_one if (is_one | (cells == 0)).all() else None


def _cells(encoded: Encoded, place: int, numbers: int) -> np.ndarray:
    """A slot's cells as numbers; NaN where missing, and the two values of a boolean are 0 and 1."""
    if place < numbers:
        return encoded.numbers[:, place]
    codes = encoded.categories[:, place - numbers]
    return np.where(codes == MISSING, np.nan, codes - FIRST)


def _complete(cells: Sequence[np.ndarray]) -> int:
    """How many of these, from the first on, have exactly one 1 in each row between them; 0 where none do."""
    seen = np.zeros_like(cells[0])
    for count, own in enumerate(cells, 1):
        if (seen & own).any():
            return 0
        seen |= own
        if seen.all():
            return count
    return 0
