"""Target of a run: classification or regression, inferred from its cells."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from softlook.base.errors import ConfigError, DataError
from softlook.tabular.formatting import percent
from softlook.tabular.io.arrow import NUMBER, parse_timestamps, pc
from softlook.tabular.io.column import CellError
from softlook.tabular.preprocessing.categorical import BOOLEANS
from softlook.tabular.preprocessing.target import Problem

MAX_INTEGER_CLASSES = 20
"""So many distinct integers may be classes."""
MIN_CLASS_COUNT = 5
"""And each of them must occur so often on average."""
MAX_COUNTED_VALUES = 100_000
"""Distinct values that are counted: a target with more is not a class."""
MIN_NUMBERS_PER_STRING = 20
"""If only one of so many distinct values is not a number, it is probably a mistake."""
SHOWN_CLASSES = 6
INTEGER = re.compile(r"-?(0|[1-9]\d{0,17})")
"""An integer without leading zeros: with leading zeros it is a string."""
DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}")
"""A date in any order of day, month and year."""


@dataclass(frozen=True)
class TargetSpec:
    """Target columns and the type of the problem."""

    names: tuple[str, ...]
    problem: Problem
    description: str
    labels: tuple[Any, ...] = ()
    """The classes: integers if all of them are, otherwise strings as they are spelled."""

    def values(self, table: pa.Table) -> np.ndarray:
        """(N,), or (N, K) for several targets; no cell is missing."""
        if self.problem == "classification":
            strings = table.column(self.names[0])
            if not self.labels or not isinstance(self.labels[0], int):
                return np.array(normalize_booleans(strings, self.labels))
            try:
                return np.array(strings.cast(pa.int64()).to_numpy())
            except pa.ArrowInvalid:
                bad = next(value for value in strings.to_pylist() if not INTEGER.fullmatch(value))
                message = f"{self.names[0]}: expected integers as in the training data, got {bad!r:.80}"
                raise CellError(message, name=self.names[0], cell=bad) from None
        columns = [_to_numbers(name, table.column(name)) for name in self.names]
        return columns[0] if len(columns) == 1 else np.stack(columns, 1)


class TargetColumnStats:
    """Statistics of a target column that is read as strings: counts of values, and the range of numbers."""

    def __init__(self, name: str) -> None:
        self.name, self.rows = name, 0
        self.counts: Counter[str] = Counter()
        self.is_countable, self.is_integer = True, True
        self.not_number: str | None = None
        """The first value that is not a number."""
        self.low, self.high = np.inf, -np.inf
        self.has_fractions = False

    def update(self, column: pa.ChunkedArray) -> None:
        """Add rows; no cell is missing."""
        self.rows += len(column)
        counted = pc.value_counts(column.combine_chunks())
        values, counts = counted.field("values").to_pylist(), counted.field("counts").to_pylist()
        self.is_integer = self.is_integer and all(INTEGER.fullmatch(value) for value in values)
        if self.is_countable:
            self.counts.update(dict(zip(values, counts, strict=True)))
            self.is_countable = len(self.counts) <= MAX_COUNTED_VALUES
        if self.not_number is None and values:
            self._update_numbers(values)

    def _update_numbers(self, values: list[str]) -> None:
        numbers = _parse_numbers(values)
        if numbers is None:
            self.not_number = next(value for value in values if _parse_numbers([value]) is None)
            return
        self.low, self.high = min(self.low, *numbers), max(self.high, *numbers)
        self.has_fractions = self.has_fractions or not all(number.is_integer() for number in numbers)

    @property
    def may_be_classes(self) -> bool:
        """Few distinct integers, each of them frequent."""
        count = len(self.counts)
        is_few = count <= 2 or (count <= MAX_INTEGER_CLASSES and count * MIN_CLASS_COUNT <= self.rows)
        return self.is_countable and not self.has_fractions and is_few

    @property
    def is_almost_numeric(self) -> bool:
        """Many distinct numbers, except for a few strings."""
        strings = sum(not NUMBER.fullmatch(value) for value in self.counts)
        is_many = len(self.counts) > MAX_INTEGER_CLASSES
        return self.is_countable and is_many and 0 < strings * MIN_NUMBERS_PER_STRING <= len(self.counts)

    def cell_error(self, message: str, alternative: str) -> CellError:
        """The error for a cell that is not a number."""
        help = f"correct or empty such cells: rows without {self.name} are dropped{alternative}"
        return CellError(message, name=self.name, cell=self.not_number or "", help=help)

    def describe_range(self) -> str:
        """The range of the numbers."""
        if self.not_number is not None:
            raise self.cell_error(f"{self.name}: expected numbers, got {self.not_number!r:.80}", "")
        return f"{self.name}, numbers from {self.low:.6g} to {self.high:.6g}"


def infer_target(columns: Sequence[TargetColumnStats], problem: Problem | None) -> TargetSpec:
    """Infer whether the problem is classification or regression, unless it is given."""
    names = tuple(column.name for column in columns)
    if len(names) > 1 and problem == "classification":
        raise ConfigError(f"classification has one target column; got {', '.join(names)}")
    if len(names) > 1 or problem == "regression":
        ranges = "; ".join(column.describe_range() for column in columns)
        return TargetSpec(names, "regression", f"Target: {ranges}.")
    (column,) = columns
    if problem is None and column.not_number is None and not column.may_be_classes:
        hint = " Use --problem classification to override." if column.is_integer and column.is_countable else ""
        return TargetSpec(names, "regression", f"Target: {column.describe_range()}.{hint}")
    return _class_target(column, problem)


def _class_target(column: TargetColumnStats, problem: Problem | None) -> TargetSpec:
    name, counts, bad = column.name, column.counts, column.not_number
    if len(counts) < 2:
        raise DataError(f"every row has the same {name}, {next(iter(counts))!r:.80}: there is nothing to learn")
    if problem is None and column.is_almost_numeric:
        message = f"{name} has {len(counts):,} distinct values, nearly all of them numbers; {bad!r:.80} is not"
        raise column.cell_error(message, "; or use --problem classification")
    is_too_many = problem is None and bad is not None and len(counts) > max(MAX_INTEGER_CLASSES, column.rows // 2)
    if not column.is_countable or is_too_many:
        example = "" if bad is None else f", and {bad!r:.80} is not a number"
        raise DataError(
            f"{name} has {len(counts):,} distinct values in {column.rows:,} rows, too many for classes{example}",
            help=_suggest_fix(bad),
        )
    shares = [f"{value} {percent(count / column.rows)}" for value, count in counts.most_common(SHOWN_CLASSES)]
    more = f" and {len(counts) - SHOWN_CLASSES:,} more" if len(counts) > SHOWN_CLASSES else ""
    hint = " Use --problem regression to override." if bad is None and problem is None else ""
    if problem is None and len(counts) > MAX_INTEGER_CLASSES and bad is not None and _looks_numeric(bad):
        hint = f" {bad!r:.80} is not a number: {_suggest_fix(bad)}, if numbers are meant."
    description = f"Target: {name}, {len(counts):,} classes ({', '.join(shares)}{more}).{hint}"
    labels = tuple(sorted(map(int, counts) if column.is_integer else counts))
    return TargetSpec((name,), "classification", description, labels)


def _suggest_fix(value: str | None) -> str:
    """What to do about a target with a value that is neither a number nor likely to be a class."""
    if value is not None and (DATE.fullmatch(value.strip()) or parse_timestamps(pa.array([value])) is not None):
        return "dates cannot be predicted: convert them to numbers, for example days since a fixed date"
    if value is not None and _looks_numeric(value):
        return "write numbers with digits and a point only, as in 1234.5"
    return "choose another column with --target, or use --problem classification"


def _looks_numeric(string: str) -> bool:
    """Whether it has digits and no letters."""
    return bool(re.search(r"\d", string)) and not re.search(r"[^\W\d_]", string)


def normalize_booleans(strings: pa.ChunkedArray, labels: Sequence[Any]) -> list[Any]:
    """Labels; booleans in the spelling of the training data: True in one file may be true in another.

    >>> normalize_booleans(pa.chunked_array([["true", "maybe"]]), ("False", "True"))
    ['True', 'maybe']
    """
    known = {str(label).lower(): str(label) for label in labels}
    if tuple(sorted(known)) != BOOLEANS or len(labels) != len(known):
        return strings.to_pylist()
    return [known.get(value.lower(), value) for value in strings.to_pylist()]


def _to_numbers(name: str, column: pa.ChunkedArray) -> np.ndarray:
    try:
        numbers = pc.cast(column, pa.float64()).to_numpy()
    except pa.ArrowInvalid:
        bad = next(value for value in column.to_pylist() if _parse_numbers([value]) is None)
        raise CellError(f"{name}: expected numbers, got {bad!r:.80}", name=name, cell=bad) from None
    if not np.isfinite(numbers).all():
        raise DataError(f"{name}: expected finite numbers, got {numbers[~np.isfinite(numbers)][0]}")
    return numbers


def _parse_numbers(values: Sequence[str]) -> list[float] | None:
    try:
        numbers = pc.cast(pa.array(values, pa.string()), pa.float64()).to_pylist()
    except pa.ArrowInvalid:
        return None
    return numbers if np.isfinite(numbers).all() else None
