"""A table that comes in pieces: some of its rows, and what is counted over all of them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from softlook.base.errors import DataError
from softlook.tabular.encoding.categories import CategoryColumn
from softlook.tabular.encoding.kinds import Kind, Learned, Said, learn_frame
from softlook.tabular.encoding.numbers import NumberColumn
from softlook.tabular.sources.arrow import as_arrow, in_order, whole
from softlook.tabular.sources.cells import Cells, Words
from softlook.tabular.sources.frames import Frame
from softlook.tabular.sources.pieces import joined_column, refuse_others

ROWS = 100_000
"""Rows that are kept."""
VALUES = 100_000
"""Distinct values that are counted in a column; when there are more, the rarer half is forgotten."""


class Reservoir:
    """Rows drawn from a table while it passes by."""

    def __init__(
        self,
        kinds: Mapping[Any, Kind] | None = None,
        ordinal: Mapping[Any, Sequence[Any]] | None = None,
        *,
        seed: int = 0,
        most: int = ROWS,
    ) -> None:
        self.kinds, self.ordinal, self.seed, self.most = kinds, ordinal, seed, most
        self.random = np.random.default_rng(seed)
        self.names: tuple[str, ...] = ()
        self.has_names = False
        self.rows = 0
        self.keys = np.zeros(0)
        self.kept: list[list[pa.Array]] = []
        self.declared: dict[int, pa.Array | None] = {}
        """What the table itself says to be categories, by place, and their order, where all pieces have the same."""
        self.missing = np.zeros(0, np.int64)
        self.counts: list[Counter[str] | None] = []

    def add(self, frame: Frame) -> None:
        """Pass a piece by."""
        if not self.names:
            self._begin(frame)
        refuse_others(frame.names, self.names)
        keys = self.random.random(frame.rows)
        rows = self._drawn(keys)
        for place in range(len(self.names)):
            cells = frame.cells(place)
            self._count(place, cells)
            self.kept[place].append(as_arrow(cells.data).take(pa.array(rows)))
        self.keys = np.append(self.keys, keys[rows])
        self.rows += frame.rows
        if len(self.keys) > 2 * self.most:
            self._thin()

    def learned(self) -> tuple[Learned, ...]:
        """What the rows and the counts say."""
        if not self.rows:
            raise DataError("no rows came: there is nothing to learn from")
        found = learn_frame(self.sample(), self.said, seed=self.seed)
        return tuple(self._counted(place, column) for place, column in enumerate(found))

    def sample(self) -> Frame:
        """The rows that were drawn; all of them, where they are not too many."""
        self._thin()
        return Frame(self.names, len(self.keys), self._column, self.has_names)

    def _begin(self, frame: Frame) -> None:
        self.names, self.has_names = frame.names, frame.has_names
        self.said = Said.of(frame.names, self.kinds, self.ordinal)
        self.kept = [[] for _ in frame.names]
        self.counts = [Counter() for _ in frame.names]
        self.missing = np.zeros(len(frame.names), np.int64)

    def _drawn(self, keys: np.ndarray) -> np.ndarray:
        """The rows whose keys may still be among the smallest of all."""
        full = len(self.keys) >= self.most
        return (
            np.flatnonzero(keys <= np.partition(self.keys, self.most - 1)[self.most - 1])
            if full
            else np.arange(len(keys))
        )

    def _thin(self) -> None:
        """Only the rows with the smallest keys, in the order they came."""
        chosen = np.sort(np.argsort(self.keys, kind="stable")[: self.most])
        self.keys = self.keys[chosen]
        self.kept = [[whole(joined_column(pieces)).take(pa.array(chosen))] for pieces in self.kept]

    def _count(self, place: int, cells: Cells) -> None:
        self.missing[place] += int(cells.missing().sum())
        if cells.is_declared:
            known = self.declared.setdefault(place, cells.order)
            self.declared[place] = known if known is not None and known.equals(cells.order) else None
        is_category = self.said.kinds.get(cells.name) == "category" or cells.is_declared or cells.sort == "words"
        counts = self.counts[place]
        if counts is None or not (is_category or cells.sort == "nothing" or counts):
            self.counts[place] = None  # numbers in one piece and words in the next: only the rows that are kept count
            return
        words = cells.words()
        counts.update(dict(zip(words.values.to_pylist(), words.counts().tolist(), strict=True)))
        if len(counts) > VALUES:
            self.counts[place] = Counter(dict(counts.most_common(VALUES // 2)))

    def _column(self, place: int) -> pa.Array:
        (data,) = self.kept[place]
        if place not in self.declared:
            return data
        order = self.declared[place]
        return data.dictionary_encode() if order is None else in_order(data, order)

    def _counted(self, place: int, column: Learned) -> Learned:
        if self.rows == len(self.keys):
            return column
        missing = int(self.missing[place])
        counts = self.counts[place]
        if isinstance(column, CategoryColumn) and column.kind == "category" and counts:
            words = Words(np.zeros(0, np.int64), pa.array(list(counts), pa.large_string()))
            counted = CategoryColumn.count(column.name, words, np.array(list(counts.values())), rows=self.rows)
            return replace(counted, how=column.how)
        if isinstance(column, NumberColumn):
            return replace(column, missing=missing / self.rows, always=None)  # some row not kept may differ
        return replace(column, missing=missing / self.rows)
