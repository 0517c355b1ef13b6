"""What is gathered in one way through a table: repeats, leaks, odd characters, and columns that tell too much."""

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa

from softlook.data.counts import REMEMBERED
from softlook.data.digest import exact_digest
from softlook.data.odd import oddities
from softlook.tabular.sources.arrow import pc

VALUES = 10_000
"""Different values of a column that are remembered."""
ENOUGH, MOST_BYTES = 1_000, 64 << 20
"""Rows that are counted at a time at least, unless they take up so much."""
BETWEEN, NOTHING = "\x1f", "\x00"
"""What parts the cells of a row, and what stands for a cell that is empty."""


class ColumnCounts:
    """What was seen of one column."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.odd: Counter[str] = Counter()
        self.odd_at: dict[str, int] = {}
        self.answers: dict[Any, Any] | None = {}
        """Each value's answer; None from where on a value has two, or there are too many values."""
        self.known: set[Any] | None = set()
        """All values, as long as each came once; None from where on one came again."""
        self.is_whole = True

    def add(self, column: pa.ChunkedArray, answers: pa.ChunkedArray, rows: np.ndarray) -> None:
        """Some cells more, what is to be predicted of each, and which rows of the files they are from."""
        if self.known is not None and len(self.known) <= VALUES:
            self._differ(column)
        if self.answers is not None:
            self._answered(column, answers)
        if pa.types.is_floating(column.type):
            self.is_whole = self.is_whole and pc.all(pc.equal(pc.floor(column), column)).as_py() is not False
        elif pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            self._look_for_odd(column, rows)

    def _differ(self, column: pa.ChunkedArray) -> None:
        values = set(column.drop_null().to_pylist())
        again = len(values) < len(column) - column.null_count or (self.known or set()) & values
        self.known = None if again else (self.known or set()) | values

    def _answered(self, column: pa.ChunkedArray, answers: pa.ChunkedArray) -> None:
        pairs = pa.table({"value": column, "answer": answers}).group_by(["value", "answer"]).aggregate([])
        known = self.answers or {}
        for value, answer in zip(pairs.column("value").to_pylist(), pairs.column("answer").to_pylist(), strict=True):
            if known.setdefault(value, answer) != answer or len(known) > VALUES:
                self.answers = None
                return
        self.answers = known

    def _look_for_odd(self, column: pa.ChunkedArray, rows: np.ndarray) -> None:
        counted = pc.value_counts(column.combine_chunks())
        for value, often in zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True):
            for kind in oddities(value or ""):
                self.odd[kind] += often
                self.odd_at.setdefault(kind, int(rows[pc.index(column, value).as_py()]))


def in_larger_parts(pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Several pieces as one, where they hold few rows each: of thousands of columns each takes its time every time."""
    held: list[pa.Table] = []
    for piece in pieces:
        held.append(piece)
        if sum(one.num_rows for one in held) >= ENOUGH or sum(one.nbytes for one in held) >= MOST_BYTES:
            yield pa.concat_tables(held)
            held = []
    if held:
        yield pa.concat_tables(held)


class TableCounts:
    """What was seen of all rows whose target is known; columns that are left out do not count."""

    def __init__(self, target: tuple[str, ...], ignore: tuple[str, ...]) -> None:
        self.target, self.ignore = target, ignore
        self.columns: dict[str, ColumnCounts] = {}
        self.rows = self.unlabelled = self.duplicates = self.disputed = 0
        self.first: dict[str, int] = {}
        """The row, counted from 1, where each thing was seen first."""
        self.seen: set[int] = set()
        self.keys: dict[int, int] = {}
        """For what rows are predicted from, what is predicted."""

    def passing(self, pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """The pieces without the target: whoever goes through them has them counted."""
        before = 0
        for piece in in_larger_parts(pieces):
            is_known = reduce(pc.and_, (piece.column(name).is_valid() for name in self.target))
            rows = np.flatnonzero(is_known) + before + 1
            known, before = piece.filter(is_known), before + piece.num_rows
            inputs = known.drop_columns([*self.target, *self.ignore])
            answers = joined(known.select(list(self.target)))
            self._rows(joined(inputs).to_pylist(), answers.to_pylist(), rows.tolist())
            for name in inputs.column_names:
                counts = self.columns.setdefault(name, ColumnCounts(name))
                counts.add(_plain(inputs.column(name)), answers, rows)
            self.rows, self.unlabelled = self.rows + len(rows), before - self.rows - len(rows)
            yield inputs

    def shared(self, pieces: Iterable[pa.Table]) -> tuple[int, int | None]:
        """How many rows of another table are predicted from what rows here are, and which the first is."""
        number, first, row = 0, None, 0
        for piece in pieces:
            for cells in joined(piece.select(list(self.columns))).to_pylist():
                row += 1
                if exact_digest(cells) in self.keys:
                    number, first = number + 1, first or row
        return number, first

    def _rows(self, inputs: list[str], answers: list[str], numbers: list[int]) -> None:
        for cells, answer, row in zip(inputs, answers, numbers, strict=True):
            whole = exact_digest(f"{cells}{BETWEEN}{answer}")
            if whole in self.seen:
                self.duplicates += 1
                self.first.setdefault("duplicates", row)
            elif len(self.seen) < REMEMBERED:
                self.seen.add(whole)
                if self.keys.setdefault(exact_digest(cells), whole) != whole:
                    self.disputed += 1
                    self.first.setdefault("disputed", row)


def joined(table: pa.Table) -> pa.ChunkedArray:
    """Each row as one text.

    >>> joined(pa.table({"age": [31, None], "city": ["Rome", "Oslo"]})).to_pylist()
    ['31\\x1fRome', '\\x00\\x1fOslo']
    """
    columns = [_written(column) for column in table.columns]
    return pc.binary_join_element_wise(*columns, BETWEEN, null_handling="replace", null_replacement=NOTHING)


def _written(column: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        return column.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.chunked_array([[None if cell is None else str(cell) for cell in column.to_pylist()]], pa.string())


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Cells that can be compared: what is neither a number nor a moment, in words."""
    kind = column.type
    is_plain = pa.types.is_primitive(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return column if is_plain else _written(column)
