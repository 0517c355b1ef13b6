"""Reservoir sample and counts of a chunked table."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from softlook.base.errors import DataError
from softlook.tabular.io.arrow import combine_chunks, to_arrow, to_ordered_categories
from softlook.tabular.io.chunked import check_same_columns, concat_columns
from softlook.tabular.io.column import Column, StringCodes
from softlook.tabular.io.frames import Frame
from softlook.tabular.preprocessing.categorical import CategoricalEncoder
from softlook.tabular.preprocessing.column_types import ColumnEncoder, ColumnOverrides, ColumnType, fit_columns
from softlook.tabular.preprocessing.numeric import NumericEncoder

RESERVOIR_ROWS = 100_000
"""Rows of the sample."""
MAX_COUNTED_VALUES = 100_000
"""Distinct values counted in a column; beyond, the rarer half is dropped."""


class Reservoir:
    """A uniform sample of the rows of a chunked table, and counts over all rows, in one pass."""

    def __init__(
        self,
        column_types: Mapping[Any, ColumnType] | None = None,
        ordinal_categories: Mapping[Any, Sequence[Any]] | None = None,
        *,
        seed: int = 0,
        capacity: int = RESERVOIR_ROWS,
    ) -> None:
        self.column_types, self.ordinal_categories = column_types, ordinal_categories
        self.seed, self.capacity = seed, capacity
        self.rng = np.random.default_rng(seed)
        self.names: tuple[str, ...] = ()
        self.has_names = False
        self.rows = 0
        self.keys = np.zeros(0)
        self.columns: list[list[pa.Array]] = []
        self.declared: dict[int, pa.Array | None] = {}
        """Columns that the table declares categorical, with their order if it is the same in all chunks."""
        self.missing = np.zeros(0, np.int64)
        self.counts: list[Counter[str] | None] = []

    def add(self, frame: Frame) -> None:
        """Add a chunk."""
        if not self.names:
            self._initialize(frame)
        check_same_columns(frame.names, self.names)
        keys = self.rng.random(frame.rows)
        rows = self._candidates(keys)
        for index in range(len(self.names)):
            column = frame.column(index)
            self._count(index, column)
            self.columns[index].append(to_arrow(column.data).take(pa.array(rows)))
        self.keys = np.append(self.keys, keys[rows])
        self.rows += frame.rows
        if len(self.keys) > 2 * self.capacity:
            self._shrink()

    def fit_columns(self) -> tuple[ColumnEncoder, ...]:
        """Column encoders from the sample and the counts."""
        if not self.rows:
            raise DataError("got no rows: there is nothing to learn from")
        columns = fit_columns(self.sample(), self.overrides, seed=self.seed)
        return tuple(self._with_counts(index, column) for index, column in enumerate(columns))

    def sample(self) -> Frame:
        """The sampled rows; all rows, if they fit."""
        self._shrink()
        return Frame(self.names, len(self.keys), self._get_array, self.has_names)

    def _initialize(self, frame: Frame) -> None:
        self.names, self.has_names = frame.names, frame.has_names
        self.overrides = ColumnOverrides.of(frame.names, self.column_types, self.ordinal_categories)
        self.columns = [[] for _ in frame.names]
        self.counts = [Counter() for _ in frame.names]
        self.missing = np.zeros(len(frame.names), np.int64)

    def _candidates(self, keys: np.ndarray) -> np.ndarray:
        """The rows whose keys may still be among the smallest of all."""
        if len(self.keys) < self.capacity:
            return np.arange(len(keys))
        return np.flatnonzero(keys <= np.partition(self.keys, self.capacity - 1)[self.capacity - 1])

    def _shrink(self) -> None:
        """Keep the rows with the smallest keys, in their original order."""
        kept = np.sort(np.argsort(self.keys, kind="stable")[: self.capacity])
        self.keys = self.keys[kept]
        self.columns = [[combine_chunks(concat_columns(parts)).take(pa.array(kept))] for parts in self.columns]

    def _count(self, index: int, column: Column) -> None:
        self.missing[index] += int(column.is_missing().sum())
        if column.is_categorical:
            order = self.declared.setdefault(index, column.category_order)
            self.declared[index] = order if order is not None and order.equals(column.category_order) else None
        is_category = (
            self.overrides.column_types.get(column.name) == "category"
            or column.is_categorical
            or column.value_type == "string"
        )
        counts = self.counts[index]
        if counts is None or not (is_category or column.value_type == "empty" or counts):
            self.counts[index] = None  # numbers in one chunk and strings in the next: only the sample counts
            return
        strings = column.strings()
        counts.update(dict(zip(strings.values.to_pylist(), strings.counts().tolist(), strict=True)))
        if len(counts) > MAX_COUNTED_VALUES:
            self.counts[index] = Counter(dict(counts.most_common(MAX_COUNTED_VALUES // 2)))

    def _get_array(self, index: int) -> pa.Array:
        (data,) = self.columns[index]
        if index not in self.declared:
            return data
        order = self.declared[index]
        return data.dictionary_encode() if order is None else to_ordered_categories(data, order)

    def _with_counts(self, index: int, column: ColumnEncoder) -> ColumnEncoder:
        if self.rows == len(self.keys):
            return column
        missing = int(self.missing[index])
        counts = self.counts[index]
        if isinstance(column, CategoricalEncoder) and column.column_type == "category" and counts:
            strings = StringCodes(np.zeros(0, np.int64), pa.array(list(counts), pa.large_string()))
            counted = CategoricalEncoder.from_counts(
                column.name, strings, np.array(list(counts.values())), rows=self.rows
            )
            return replace(counted, note=column.note)
        if isinstance(column, NumericEncoder):
            return replace(column, missing=missing / self.rows, constant=None)  # a row not sampled may differ
        return replace(column, missing=missing / self.rows)
