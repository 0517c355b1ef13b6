"""What the cells of a column may be when they come as JSON: nothing is guessed, and what does not fit is said."""

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import count as numbers_from
from typing import Any

import numpy as np
import pyarrow as pa

from softlook.base.errors import DataError
from softlook.serve.tables import Cell
from softlook.tabular.encoding.categories import TRUTHS
from softlook.tabular.encoding.kinds import Learned
from softlook.tabular.sources.cells import Cells
from softlook.tabular.sources.parsing import NUMBER, number_word
from softlook.tabular.wording import named

Array = np.ndarray | pa.Array
NUMBERS, TEXTS = "numbers", "texts"
SPELLED = (*TRUTHS, "0", "1")
NOTHING = ("", "-", "?", "na", "n/a", "nan", "null", "none")
"""What people write for a missing cell."""


class Taking:
    """One column of a table: what it takes, and the arrays it makes of it.

    >>> from softlook.tabular.encoding.numbers import NumberColumn
    >>> Taking(NumberColumn("age")).array([39, None, 4.5])
    array([39. ,  nan,  4.5])
    >>> Taking(NumberColumn("age")).array([39, "old"])
    Traceback (most recent call last):
    softlook.base.errors.DataError: row 1: 'age' holds numbers, and the text 'old' came
    """

    def __init__(self, column: Learned) -> None:
        self.column = column

    def array(self, cells: Sequence[Cell]) -> Array:
        """The cells as one array, whose type depends on the column alone."""
        if self.column.kind == "number":
            return np.array([self._number(row, cell) for row, cell in enumerate(cells)], np.float64)
        read = self._reader()
        words = [None if cell is None else read(row, cell) for row, cell in enumerate(cells)]
        array = pa.array(words, pa.large_string())
        if self.column.kind == "date":
            self._check_moments(array)
        return array

    def _reader(self) -> Callable[[int, Any], str]:
        readers = {"date": self._text, "text": self._text, "ordinal": self._rank, "boolean": self._truth}
        if self.is_unknown:
            return lambda row, cell: _word(cell)
        return readers.get(self.column.kind, self._category)

    def _number(self, row: int, cell: Cell) -> float:
        if cell is None or self.is_unknown:
            return np.nan
        if isinstance(cell, str | bool):
            raise self._odd(row, NUMBERS, cell)
        return float(cell)

    def _text(self, row: int, cell: Cell) -> str:
        if not isinstance(cell, str):
            raise self._odd(row, "dates as 2024-02-29T12:30" if self.column.kind == "date" else TEXTS, cell)
        return cell

    def _rank(self, row: int, cell: Cell) -> str:
        word = _word(cell)
        if word not in self.values:
            raise self._odd(row, named(self.values), cell)
        return word

    def _truth(self, row: int, cell: Cell) -> str:
        word = _word(cell)
        if self.values == TRUTHS and word.lower() not in SPELLED:
            raise self._odd(row, "true or false", cell)
        return word

    def _category(self, row: int, cell: Cell) -> str:
        """A value that was never seen is fine, but not one of a sort that was never seen."""
        odd = (isinstance(cell, bool) and not self.has_truths) or (not isinstance(cell, str) and not self.has_numbers)
        if odd and self.values:
            raise self._odd(row, TEXTS, cell)
        return _word(cell)

    @property
    def is_unknown(self) -> bool:
        """Was it empty while learning? Then nothing is known of it, so nothing is wrong with it."""
        return self.column.missing == 1.0

    @cached_property
    def values(self) -> tuple[str, ...]:
        return getattr(self.column, "values", ())

    @cached_property
    def has_truths(self) -> bool:
        return any(value.lower() in TRUTHS for value in self.values)

    @cached_property
    def has_numbers(self) -> bool:
        return self.has_truths or any(NUMBER.fullmatch(value) for value in self.values)

    def _check_moments(self, array: pa.Array) -> None:
        """All at once; where that fails, one by one: some may have a time zone, and others none."""
        if self._is_readable(array):
            return
        row = next(row for row in numbers_from() if not self._is_readable(array[row : row + 1]))
        zone: str | None = getattr(self.column, "zone", None)
        like = "2024-02-29T12:30" if zone is None else "2024-02-29T12:30Z, with a time zone,"
        raise self._odd(row, f"dates as {like}", array[row].as_py())

    def _is_readable(self, array: pa.Array) -> bool:
        try:
            self.column.encode(Cells(self.column.name, array))
        except (DataError, StopIteration):
            return False
        return True

    def _odd(self, row: int, wanted: str, cell: Cell) -> DataError:
        came = "the text" if isinstance(cell, str) else "the truth value" if isinstance(cell, bool) else "the number"
        shown = repr(cell) if isinstance(cell, str) else _word(cell)
        return DataError(
            f"row {row}: {self.column.name!r:.80} holds {wanted}, and {came} {shown:.60} came{_advice(cell, wanted)}"
        )


def _advice(cell: Cell, wanted: str) -> str:
    if not isinstance(cell, str):
        return f'. As a text it is "{_word(cell)}"' if wanted == TEXTS else ""
    if cell.strip().lower() in NOTHING:
        return ". A missing cell is null"
    return ". Leave out its quotes" if wanted == NUMBERS and NUMBER.fullmatch(cell) else ""


def _word(cell: Cell) -> str:
    """As the words of columns are spelled: 3 and 3.0 are both '3', True is 'true'."""
    if isinstance(cell, bool):
        return str(cell).lower()
    return number_word(cell) if isinstance(cell, float) else str(cell)
