"""Categorical and boolean columns as integer codes.

Code 0 is a missing cell, code 1 a rare or unseen value; the values follow.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from softlook.base.errors import DataError
from softlook.tabular.formatting import describe_column, fraction, join_names, plural
from softlook.tabular.io.arrow import pc
from softlook.tabular.io.column import Column, StringCodes

MISSING, RARE, FIRST_CODE = 0, 1, 2
MAX_CATEGORIES = 1000
"""Values of a column that get their own code."""
BOOLEANS = ("false", "true")


@dataclass(frozen=True)
class CategoricalEncoder:
    """Encoder of a categorical or boolean column."""

    name: str
    values: tuple[str, ...]
    """The values with their own code, sorted."""
    n_rare: int = 0
    """How many distinct values share the code of rare ones."""
    missing: float = 0.0
    """Fraction of missing cells."""
    is_id: bool = False
    """Whether every cell holds a different value."""
    column_type: Literal["category", "boolean"] = "category"
    note: str = ""
    """How the type was inferred, if that is worth reporting."""

    features = ("",)

    @classmethod
    def fit(cls, column: Column) -> "CategoricalEncoder":
        """Keep the values that are frequent enough."""
        strings = column.strings()
        return cls.from_counts(column.name, strings, strings.counts(), rows=len(column))

    @classmethod
    def from_counts(cls, name: str, strings: StringCodes, counts: np.ndarray, *, rows: int) -> "CategoricalEncoder":
        """From the values and how often each occurs."""
        present, distinct = int(counts.sum()), len(counts)
        is_id = distinct == present >= 20
        kept = [] if is_id else _frequent_values(strings.values.to_pylist(), counts, min_count(present, distinct))
        return cls(name, tuple(kept), distinct - len(kept), fraction(rows - present, rows), is_id)

    @classmethod
    def fit_boolean(cls, column: Column) -> "CategoricalEncoder":
        """A column of at most two values."""
        strings = column.strings()
        values = BOOLEANS if column.value_type == "boolean" else tuple(sorted(strings.values.to_pylist()))
        if len(values) > 2:
            raise DataError(
                f"column {column.name!r}: expected two values, got {len(values):,}: {join_names(values, 4)}",
                help=f"column_types={{{column.name!r}: 'category'}} accepts any number of values",
            )
        missing = fraction(int((strings.codes < 0).sum()), len(column))
        return cls(column.name, values, 0, missing, column_type="boolean")

    @property
    def cardinality(self) -> int:
        """Number of codes."""
        return FIRST_CODE + len(self.values)

    def encode(self, column: Column) -> np.ndarray:
        """(N,) int64 codes."""
        strings = column.strings()
        values = _normalize_booleans(strings.values) if self.values == BOOLEANS else strings.values
        indices = pc.index_in(values, value_set=pa.array(self.values, pa.large_string()))
        codes = pc.fill_null(indices, RARE - FIRST_CODE).to_numpy(zero_copy_only=False).astype(np.int64) + FIRST_CODE
        return np.append(codes, MISSING)[strings.codes]

    def describe(self) -> str:
        """One line about the column."""
        if self.column_type == "boolean":
            return describe_column(self.name, self.column_type, missing=self.missing)
        if self.is_id:
            details = [self.note, "every value is unique, as in an id: it carries no information"]
        else:
            is_constant = len(self.values) == 1 and not self.n_rare
            values = f"always {self.values[0]!r}" if is_constant else plural(len(self.values), "value")
            details = [self.note, values, f"{self.n_rare:,} rare taken as one" if self.n_rare else ""]
        return describe_column(self.name, self.column_type, *details, missing=self.missing)


def min_count(present: int, distinct: int) -> int:
    """How often a value must occur to get its own code; more often in a longer table.

    >>> min_count(300, 4), min_count(300, 200), min_count(30_000, 40)
    (1, 2, 5)
    """
    least = min(5, 1 + present // 1000)
    return max(least, 2) if distinct > present / 2 and present >= 20 else least


def _frequent_values(values: list[str], counts: np.ndarray, least: int) -> list[str]:
    """The most frequent values, sorted; independent of the order of the rows."""
    frequent = [(-int(count), value) for value, count in zip(values, counts, strict=True) if count >= least]
    return sorted(value for _, value in sorted(frequent)[:MAX_CATEGORIES])


def _normalize_booleans(values: pa.Array) -> pa.Array:
    """Booleans in the spellings of people and programs: True, TRUE, 1."""
    lower = pc.utf8_lower(values)
    return pc.if_else(pc.equal(lower, "1"), "true", pc.if_else(pc.equal(lower, "0"), "false", lower))
