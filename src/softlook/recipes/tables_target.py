"""What a target column holds, classes or numbers: seen from its cells, and said."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from softlook.base.errors import ConfigError, DataError
from softlook.tabular.encoding.categories import TRUTHS
from softlook.tabular.sources.arrow import pc
from softlook.tabular.sources.cells import CellError
from softlook.tabular.sources.parsing import NUMBER, moments_in
from softlook.tabular.wording import percent

Answers = Literal["classes", "numbers"]
FEW = 20
"""So many different whole numbers may be classes."""
OFTEN = 5
"""And so often each of them has to occur, on average."""
MOST = 100_000
"""Different values of which each is counted: what has more is no class."""
RARE = 20
"""Of so many different values, one may be no number before they are taken for words."""
SHOWN = 6
"""Classes that are named."""
WHOLE = re.compile(r"-?(0|[1-9]\d{0,17})")
"""A whole number as it is usually spelled: one with zeros in front is a word."""
DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}")
"""A day, in whatever order its parts stand."""


@dataclass(frozen=True)
class Target:
    """What is to be predicted."""

    names: tuple[str, ...]
    answers: Answers
    said: str
    labels: tuple[Any, ...] = ()
    """The classes: whole numbers where all of them are, else words as they are spelled."""

    def values(self, table: pa.Table) -> np.ndarray:
        """(N,), or (N, K) of several numbers; every cell is known to be there."""
        if self.answers == "classes":
            words = table.column(self.names[0])
            try:
                return np.array(words.cast(pa.int64()).to_numpy() if self.is_whole else spelled(words, self.labels))
            except pa.ArrowInvalid:
                odd = next(word for word in words.to_pylist() if not WHOLE.fullmatch(word))
                said = f"{self.names[0]} is a whole number in the data, and {odd!r:.80} here"
                raise CellError(said, name=self.names[0], cell=odd) from None
        columns = [_numbers(name, table.column(name)) for name in self.names]
        return columns[0] if len(columns) == 1 else np.stack(columns, 1)

    @property
    def is_whole(self) -> bool:
        """Are the classes whole numbers?"""
        return bool(self.labels) and isinstance(self.labels[0], int)


class Seen:
    """What passed by of a target column, spelled as it is: values and how often each came, as far as they are few."""

    def __init__(self, name: str) -> None:
        self.name, self.rows = name, 0
        self.counts: Counter[str] = Counter()
        self.is_few, self.is_whole, self.odd = True, True, None
        self.low, self.high = np.inf, -np.inf
        self.parts = False
        """Has some number a fraction?"""

    def add(self, column: pa.ChunkedArray) -> None:
        """Some rows more, each with a value."""
        self.rows += len(column)
        counted = pc.value_counts(column.combine_chunks())
        values, counts = counted.field("values").to_pylist(), counted.field("counts").to_pylist()
        self.is_whole = self.is_whole and all(WHOLE.fullmatch(value) for value in values)
        if self.is_few:
            self.counts.update(dict(zip(values, counts, strict=True)))
            self.is_few = len(self.counts) <= MOST
        if self.odd is None and values:
            self._number(values)

    def _number(self, values: list[str]) -> None:
        numbers = _as_numbers(values)
        if numbers is None:
            self.odd = next(value for value in values if _as_numbers([value]) is None)
            return
        self.low, self.high = min(self.low, *numbers), max(self.high, *numbers)
        self.parts = self.parts or not all(number.is_integer() for number in numbers)

    @property
    def may_be_classes(self) -> bool:
        """A few different whole numbers, each of them often."""
        few = len(self.counts)
        return self.is_few and not self.parts and (few <= 2 or (few <= FEW and few * OFTEN <= self.rows))

    @property
    def would_be_numbers(self) -> bool:
        """Many different numbers, but for a word or two."""
        words = sum(not NUMBER.fullmatch(value) for value in self.counts)
        return self.is_few and len(self.counts) > FEW and 0 < words * RARE <= len(self.counts)

    def odd_cell(self, said: str, otherwise: str) -> CellError:
        """The error for a cell that is no number, where numbers are wanted."""
        help = f"mend such cells or empty them: rows without {self.name} are left out{otherwise}"
        return CellError(said, name=self.name, cell=self.odd or "", help=help)

    def ends(self) -> str:
        """From where to where numbers go."""
        if self.odd is not None:
            raise self.odd_cell(f"{self.name} is to hold numbers, and holds {self.odd!r:.80}", "")
        return f"{self.name}, numbers from {self.low:.6g} to {self.high:.6g}"


def decided(seen: Sequence[Seen], told: Answers | None) -> Target:
    """Whether classes or numbers are to be predicted, and why."""
    names = tuple(one.name for one in seen)
    if len(names) > 1 and told == "classes":
        raise ConfigError(f"one column of classes can be predicted, or several of numbers; {', '.join(names)} came")
    if len(names) > 1 or told == "numbers":
        return Target(names, "numbers", f"To be predicted: {'; '.join(one.ends() for one in seen)}.")
    (one,) = seen
    if told is None and one.odd is None and not one.may_be_classes:
        other = " --answers classes says otherwise." if one.is_whole and one.is_few else ""
        return Target(names, "numbers", f"To be predicted: {one.ends()}.{other}")
    return _classes(one, told)


def _classes(seen: Seen, told: Answers | None) -> Target:
    name, counts = seen.name, seen.counts
    if len(counts) < 2:
        raise DataError(f"every row has the same {name}, {next(iter(counts))!r:.80}: there is nothing to learn")
    if told is None and seen.would_be_numbers:
        said = f"{name} has {len(counts):,} different values, nearly all of them numbers, and {seen.odd!r:.80} is none"
        raise seen.odd_cell(said, "; or say --answers classes if it is meant so")
    if not seen.is_few or (told is None and seen.odd is not None and len(counts) > max(FEW, seen.rows // 2)):
        odd = "" if seen.odd is None else f", and {seen.odd!r:.80} is no number"
        raise DataError(
            f"{name} has {len(counts):,} different values in {seen.rows:,} rows, too many for classes{odd}",
            help=_instead(seen.odd),
        )
    shares = [f"{value} {percent(count / seen.rows)}" for value, count in counts.most_common(SHOWN)]
    more = f" and {len(counts) - SHOWN:,} more" if len(counts) > SHOWN else ""
    other = " --answers numbers says otherwise." if seen.odd is None and told is None else ""
    if told is None and len(counts) > FEW and seen.odd is not None and _is_amount(seen.odd):
        other = f" {seen.odd!r:.80} is no number: {_instead(seen.odd)}, if numbers are meant."
    said = f"To be predicted: {name}, {len(counts):,} classes ({', '.join(shares)}{more}).{other}"
    return Target((name,), "classes", said, tuple(sorted(map(int, counts) if seen.is_whole else counts)))


def _instead(odd: str | None) -> str:
    """What can be done about a column of which this value is neither a number nor likely to be a class."""
    if odd is not None and (DATE.fullmatch(odd.strip()) or moments_in(pa.array([odd])) is not None):
        return "a date is not predicted: make a number of it, days from a day of your choice, say"
    if odd is not None and _is_amount(odd):
        return "spell numbers with digits and a point alone, as in 1234.5"
    return "name another column with --target, or say --answers classes if it is meant so"


def _is_amount(word: str) -> bool:
    """Whether it has digits and signs, and no letters."""
    return bool(re.search(r"\d", word)) and not re.search(r"[^\W\d_]", word)


def spelled(words: pa.ChunkedArray, labels: Sequence[Any]) -> list[Any]:
    """Words as the classes are spelled: what is True in one file may be true in another.

    >>> spelled(pa.chunked_array([["true", "maybe"]]), ("False", "True"))
    ['True', 'maybe']
    """
    known = {str(label).lower(): str(label) for label in labels}
    if tuple(sorted(known)) != TRUTHS or len(labels) != len(known):
        return words.to_pylist()
    return [known.get(word.lower(), word) for word in words.to_pylist()]


def _numbers(name: str, column: pa.ChunkedArray) -> np.ndarray:
    try:
        found = pc.cast(column, pa.float64()).to_numpy()
    except pa.ArrowInvalid:
        wrong = next(word for word in column.to_pylist() if _as_numbers([word]) is None)
        raise CellError(f"{name} is to hold numbers, and holds {wrong!r:.80}", name=name, cell=wrong) from None
    if not np.isfinite(found).all():
        raise DataError(f"{name} is to hold numbers, and holds {found[~np.isfinite(found)][0]}")
    return found


def _as_numbers(values: Sequence[str]) -> list[float] | None:
    try:
        found = pc.cast(pa.array(values, pa.string()), pa.float64()).to_pylist()
    except pa.ArrowInvalid:
        return None
    return found if np.isfinite(found).all() else None
