"""One-hot columns collapsed into one categorical feature."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from softlook.tabular.formatting import describe_column
from softlook.tabular.preprocessing.categorical import FIRST_CODE, MISSING, RARE
from softlook.tabular.preprocessing.table_encoder import EncodedTable, Feature, TableEncoder


@dataclass(frozen=True)
class OneHotGroups:
    """Groups of one-hot features. Each becomes one categorical feature after all others."""

    groups: tuple[tuple[int, ...], ...]
    """Feature indices, numbers before categories."""
    n_numbers: int
    """How many features are numeric."""

    @staticmethod
    def find(encoder: TableEncoder, encoded: EncodedTable) -> "OneHotGroups":
        """Consecutive features of zeros and ones of which every row has exactly one 1."""
        n_numbers = encoded.numbers.shape[1]
        is_set = {index: _is_set(encoder, encoded, index) for index in range(len(encoder.features))}
        candidates = [index for index, cells in is_set.items() if cells is not None and cells.any() and not cells.all()]
        groups = list[tuple[int, ...]]()
        while candidates:
            size = _group_size([is_set[index] for index in candidates])  # pyright: ignore[reportArgumentType]
            if size:
                groups.append(tuple(candidates[:size]))
            candidates = candidates[size or 1 :]
        return OneHotGroups(tuple(groups), n_numbers)

    @property
    def cardinalities(self) -> tuple[int, ...]:
        """Number of codes of each group."""
        return tuple(FIRST_CODE + len(group) for group in self.groups)

    def remaining(self, n_features: int) -> list[int]:
        """The features outside all groups."""
        grouped = {index for group in self.groups for index in group}
        return [index for index in range(n_features) if index not in grouped]

    def collapse(self, encoded: EncodedTable) -> EncodedTable:
        """The rows with each group as one categorical feature."""
        if not self.groups:
            return encoded
        remaining = self.remaining(self.n_numbers + encoded.categories.shape[1])
        numbers = encoded.numbers[:, [index for index in remaining if index < self.n_numbers]]
        categories = encoded.categories[:, [index - self.n_numbers for index in remaining if index >= self.n_numbers]]
        codes = [self._codes(encoded, group) for group in self.groups]
        return EncodedTable(numbers, np.column_stack([categories, *codes]))

    def _codes(self, encoded: EncodedTable, group: tuple[int, ...]) -> np.ndarray:
        """Codes as in all categories: missing if a cell is missing, rare unless exactly one cell is 1."""
        cells = np.stack([_cells(encoded, index, self.n_numbers) for index in group], 1)
        is_one = cells == 1
        is_valid = (is_one | (cells == 0)).all(1) & (is_one.sum(1) == 1)
        codes = np.where(is_valid, FIRST_CODE + is_one.argmax(1), RARE)
        return np.where(np.isnan(cells).any(1), MISSING, codes).astype(np.int64)

    def describe(self, features: Sequence[Feature]) -> list[str]:
        """One line about each group."""
        names = [[features[index].column for index in group] for group in self.groups]
        return [describe_column(f"{own[0]} … {own[-1]}", f"one-hot category in {len(own)} columns") for own in names]


def _is_set(encoder: TableEncoder, encoded: EncodedTable, index: int) -> np.ndarray | None:
    """Where a feature of zeros and ones is 1; None if it has other values."""
    n_numbers, feature = encoded.numbers.shape[1], encoder.features[index]
    if encoder.column_types[feature.column] != ("number" if index < n_numbers else "boolean"):
        return None
    cells = _cells(encoded, index, n_numbers)
    is_one = cells == 1
    return is_one if (is_one | (cells == 0)).all() else None


def _cells(encoded: EncodedTable, index: int, n_numbers: int) -> np.ndarray:
    """A feature as numbers; NaN for missing cells, and the values of a boolean are 0 and 1."""
    if index < n_numbers:
        return encoded.numbers[:, index]
    codes = encoded.categories[:, index - n_numbers]
    return np.where(codes == MISSING, np.nan, codes - FIRST_CODE)


def _group_size(columns: Sequence[np.ndarray]) -> int:
    """How many columns, from the first on, have exactly one 1 in each row; 0 if none do."""
    covered = np.zeros_like(columns[0])
    for size, column in enumerate(columns, 1):
        if (covered & column).any():
            return 0
        covered |= column
        if covered.all():
            return size
    return 0
