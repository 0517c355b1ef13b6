"""Statistics of a table in one pass: duplicates, leaks, odd characters, revealing columns."""

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa

from softlook.data.data_report import MAX_TRACKED, quality_issues
from softlook.data.split import exact_digest
from softlook.tabular.io.arrow import pc

MAX_VALUES = 10_000
"""Distinct values of a column that are tracked."""
MIN_CHUNK_ROWS, MAX_CHUNK_BYTES = 1_000, 64 << 20
"""Rows counted at a time, unless they take up more bytes."""
SEPARATOR, EMPTY_CELL = "\x1f", "\x00"
"""Separator of the cells of a row, and the text of an empty cell."""


class ColumnStats:
    """Statistics of one column."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.issues: Counter[str] = Counter()
        self.first_issue_row: dict[str, int] = {}
        self.value_targets: dict[Any, Any] | None = {}
        """The target of each value; None once a value has two, or there are too many values."""
        self.unique_values: set[Any] | None = set()
        """All values while they are unique; None once one is repeated."""
        self.is_integer = True

    def update(self, column: pa.ChunkedArray, targets: pa.ChunkedArray, rows: np.ndarray) -> None:
        """Add cells with their targets and row numbers."""
        if self.unique_values is not None and len(self.unique_values) <= MAX_VALUES:
            self._update_unique(column)
        if self.value_targets is not None:
            self._update_targets(column, targets)
        if pa.types.is_floating(column.type):
            self.is_integer = self.is_integer and pc.all(pc.equal(pc.floor(column), column)).as_py() is not False
        elif pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            self._find_issues(column, rows)

    def _update_unique(self, column: pa.ChunkedArray) -> None:
        values = set(column.drop_null().to_pylist())
        is_repeated = len(values) < len(column) - column.null_count or (self.unique_values or set()) & values
        self.unique_values = None if is_repeated else (self.unique_values or set()) | values

    def _update_targets(self, column: pa.ChunkedArray, targets: pa.ChunkedArray) -> None:
        pairs = pa.table({"value": column, "target": targets}).group_by(["value", "target"]).aggregate([])
        known = self.value_targets or {}
        for value, target in zip(pairs.column("value").to_pylist(), pairs.column("target").to_pylist(), strict=True):
            if known.setdefault(value, target) != target or len(known) > MAX_VALUES:
                self.value_targets = None
                return
        self.value_targets = known

    def _find_issues(self, column: pa.ChunkedArray, rows: np.ndarray) -> None:
        counted = pc.value_counts(column.combine_chunks())
        for value, count in zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True):
            for kind in quality_issues(value or ""):
                self.issues[kind] += count
                self.first_issue_row.setdefault(kind, int(rows[pc.index(column, value).as_py()]))


def merge_small_chunks(chunks: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Concatenate chunks of few rows: with thousands of columns, each chunk has a large overhead."""
    small: list[pa.Table] = []
    for chunk in chunks:
        small.append(chunk)
        rows, size = sum(one.num_rows for one in small), sum(one.nbytes for one in small)
        if rows >= MIN_CHUNK_ROWS or size >= MAX_CHUNK_BYTES:
            yield pa.concat_tables(small)
            small = []
    if small:
        yield pa.concat_tables(small)


class TableStats:
    """Statistics of all rows with a target, without ignored columns."""

    def __init__(self, target: tuple[str, ...], ignore: tuple[str, ...]) -> None:
        self.target, self.ignore = target, ignore
        self.columns: dict[str, ColumnStats] = {}
        self.rows = self.unlabelled = self.duplicates = self.conflicts = 0
        self.first_row: dict[str, int] = {}
        """The first row of each kind of problem, counted from 1."""
        self.row_digests: set[int] = set()
        self.feature_digests: dict[int, int] = {}
        """Digest of the features to that of the whole row."""

    def count(self, chunks: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """The chunks without the target; they are counted as they are consumed."""
        total = 0
        for chunk in merge_small_chunks(chunks):
            is_labelled = reduce(pc.and_, (chunk.column(name).is_valid() for name in self.target))
            rows = np.flatnonzero(is_labelled) + total + 1
            labelled, total = chunk.filter(is_labelled), total + chunk.num_rows
            features = labelled.drop_columns([*self.target, *self.ignore])
            targets = join_cells(labelled.select(list(self.target)))
            self._count_rows(join_cells(features).to_pylist(), targets.to_pylist(), rows.tolist())
            for name in features.column_names:
                stats = self.columns.setdefault(name, ColumnStats(name))
                stats.update(_comparable(features.column(name)), targets, rows)
            self.rows, self.unlabelled = self.rows + len(rows), total - self.rows - len(rows)
            yield features

    def count_leaks(self, chunks: Iterable[pa.Table]) -> tuple[int, int | None]:
        """How many rows of another table have the features of a counted row, and the first of them."""
        number, first, row = 0, None, 0
        for chunk in chunks:
            for cells in join_cells(chunk.select(list(self.columns))).to_pylist():
                row += 1
                if exact_digest(cells) in self.feature_digests:
                    number, first = number + 1, first or row
        return number, first

    def _count_rows(self, features: list[str], targets: list[str], numbers: list[int]) -> None:
        for cells, target, row in zip(features, targets, numbers, strict=True):
            digest = exact_digest(f"{cells}{SEPARATOR}{target}")
            if digest in self.row_digests:
                self.duplicates += 1
                self.first_row.setdefault("duplicates", row)
            elif len(self.row_digests) < MAX_TRACKED:
                self.row_digests.add(digest)
                if self.feature_digests.setdefault(exact_digest(cells), digest) != digest:
                    self.conflicts += 1
                    self.first_row.setdefault("conflicts", row)


def join_cells(table: pa.Table) -> pa.ChunkedArray:
    """Each row as one string.

    >>> join_cells(pa.table({"age": [31, None], "city": ["Rome", "Oslo"]})).to_pylist()
    ['31\\x1fRome', '\\x00\\x1fOslo']
    """
    columns = [_to_strings(column) for column in table.columns]
    return pc.binary_join_element_wise(*columns, SEPARATOR, null_handling="replace", null_replacement=EMPTY_CELL)


def _to_strings(column: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        return column.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.chunked_array([[None if cell is None else str(cell) for cell in column.to_pylist()]], pa.string())


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Primitive and string columns unchanged; others as strings."""
    dtype = column.type
    is_plain = pa.types.is_primitive(dtype) or pa.types.is_string(dtype) or pa.types.is_large_string(dtype)
    return column if is_plain else _to_strings(column)
