"""Columns of categories: code 0 is a missing cell, code 1 a value that is rare or was never seen, then the values."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from softlook.base.errors import DataError
from softlook.tabular.sources.arrow import pc
from softlook.tabular.sources.cells import Cells, Words
from softlook.tabular.wording import many, named, share, told

MISSING, RARE, FIRST = 0, 1, 2
MOST = 1000
"""Values a column keeps codes for."""
TRUTHS = ("false", "true")


@dataclass(frozen=True)
class CategoryColumn:
    """A column of categories, or of truths."""

    name: str
    values: tuple[str, ...]
    """Those with a code of their own, in order."""
    others: int = 0
    """How many distinct values share the code of rare ones."""
    missing: float = 0.0
    is_id: bool = False
    """Whether every cell holds another value."""
    kind: Literal["category", "boolean"] = "category"
    how: str = ""
    """What a person may want to know about how it was recognised."""

    slots = ("",)

    @classmethod
    def learn(cls, cells: Cells) -> "CategoryColumn":
        """The values that are common enough to mean something."""
        words = cells.words()
        return cls.count(cells.name, words, words.counts(), rows=len(cells))

    @classmethod
    def count(cls, name: str, words: Words, counts: np.ndarray, *, rows: int) -> "CategoryColumn":
        """From the values and how often each occurs."""
        present, distinct = int(counts.sum()), len(counts)
        is_id = distinct == present >= 20
        least = least_count(present, distinct)
        kept = [] if is_id else _kept(words.values.to_pylist(), counts, least)
        return cls(name, tuple(kept), distinct - len(kept), share(rows - present, rows), is_id)

    @classmethod
    def learn_boolean(cls, cells: Cells) -> "CategoryColumn":
        """Two values at most."""
        words = cells.words()
        values = TRUTHS if cells.sort == "boolean" else tuple(sorted(words.values.to_pylist()))
        if len(values) > 2:
            raise DataError(
                f"column {cells.name!r} is to hold two values; it holds {len(values):,}: {named(values, 4)}",
                help=f"kinds={{{cells.name!r}: 'category'}} takes any number of them",
            )
        return cls(cells.name, values, 0, share(int((words.codes < 0).sum()), len(cells)), kind="boolean")

    @property
    def size(self) -> int:
        """How many codes there are."""
        return FIRST + len(self.values)

    def encode(self, cells: Cells) -> np.ndarray:
        """(N,) int64."""
        words = cells.words()
        values = _truths(words.values) if self.values == TRUTHS else words.values
        places = pc.index_in(values, value_set=pa.array(self.values, pa.large_string()))
        codes = pc.fill_null(places, RARE - FIRST).to_numpy(zero_copy_only=False).astype(np.int64) + FIRST
        return np.append(codes, MISSING)[words.codes]

    def told(self) -> str:
        """A line for people."""
        if self.is_id:
            return told(
                self.name,
                self.kind,
                self.how,
                "every value is another one, as in an id: it carries nothing",
                missing=self.missing,
            )
        if self.kind == "boolean":
            return told(self.name, self.kind, missing=self.missing)
        held = (
            f"always {self.values[0]!r}"
            if len(self.values) == 1 and not self.others
            else many(len(self.values), "value")
        )
        rare = f"{self.others:,} rare taken as one" if self.others else ""
        return told(self.name, self.kind, self.how, held, rare, missing=self.missing)

    def facts(self) -> dict[str, Any]:
        """What `CategoryColumn(**facts)` is made of."""
        return vars(self).copy()


def least_count(present: int, distinct: int) -> int:
    """How often a value must occur to keep a code of its own: more often in a longer table.

    >>> least_count(300, 4), least_count(300, 200), least_count(30_000, 40)
    (1, 2, 5)
    """
    least = min(5, 1 + present // 1000)
    return max(least, 2) if distinct > present / 2 and present >= 20 else least


def _kept(values: list[str], counts: np.ndarray, least: int) -> list[str]:
    """The most frequent ones, whatever order they came in."""
    common = [(-int(count), value) for value, count in zip(values, counts, strict=True) if count >= least]
    return sorted(value for _, value in sorted(common)[:MOST])


def _truths(values: pa.Array) -> pa.Array:
    """Truths as people and programs write them: True, TRUE, 1."""
    lower = pc.utf8_lower(values)
    return pc.if_else(pc.equal(lower, "1"), "true", pc.if_else(pc.equal(lower, "0"), "false", lower))
