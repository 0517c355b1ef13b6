"""One column of a table, whatever it came in: as numbers, as words or as moments in time.

Equal content reads equal, to the bit: a missing cell may be None, NaN, NaT or null; words may be strings, categories or
a dictionary; whole numbers may be integers, or floats because one of them is missing.
"""

import shlex
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from softlook.base.errors import DataError
from softlook.tabular.sources.arrow import pc, whole
from softlook.tabular.sources.parsing import NUMBER, as_moments, as_numbers, moments_in, numbers_in, written

Sort = Literal["nothing", "number", "boolean", "date", "words"]


class Words(NamedTuple):
    """Words by their places in a list of distinct ones."""

    codes: np.ndarray
    """(N,) integers, -1 where the cell is missing."""
    values: pa.Array
    """The distinct words."""

    def counts(self) -> np.ndarray:
        """How often each word occurs."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.values))


class Times(NamedTuple):
    """Moments in time."""

    moments: np.ndarray
    """(N,) microseconds since 1970 as integers, 0 where missing."""
    known: np.ndarray
    """(N,) False where the cell is missing."""
    zone: str | None
    """The time zone the moments were told in. Without one they are what a clock on the wall shows."""


class Cells:
    """A column: its name, and its values as numpy's numbers or as one of pyarrow's arrays.

    >>> cells = Cells("size", pa.array(["S", None, "L", "S"]))
    >>> cells.sort, cells.words().codes.tolist(), cells.words().values.to_pylist()
    ('words', [0, -1, 1, 0], ['S', 'L'])
    """

    def __init__(self, name: str, data: np.ndarray | pa.Array | pa.ChunkedArray) -> None:
        self.name = name
        found: Any = data if isinstance(data, np.ndarray) else _plain(name, data)
        self.is_declared = isinstance(found, pa.DictionaryArray)
        """Whether the table itself says that these are categories."""
        self.order: pa.Array | None = found.dictionary if self.is_declared and found.type.ordered else None
        """The order of the categories where the table has one."""
        self.data: np.ndarray | pa.Array = _decoded(found) if self.is_declared else found
        self.sort: Sort = _sort(self.data)
        """What the column holds, seen by its type."""

    def __len__(self) -> int:
        return len(self.data)

    def missing(self) -> np.ndarray:
        """(N,) True where the cell is missing."""
        if isinstance(self.data, np.ndarray):
            return np.isnan(self.data) if self.data.dtype.kind == "f" else np.zeros(len(self), dtype=bool)
        return pc.is_null(self.data, nan_is_null=True).to_numpy(zero_copy_only=False)

    def numbers(self) -> np.ndarray:
        """(N,) float64 with NaN where the cell is missing; words are read as numbers. Infinity is refused."""
        found = self._floats()
        if np.isinf(found).any():
            row = int(np.isinf(found).argmax())
            raise infinite(self.name, row, float(found[row]))
        return found

    def words(self) -> Words:
        """The cells as words, whatever they were: 3 and 3.0 are both '3', True is 'true'."""
        if self.sort == "nothing":
            return Words(np.full(len(self), -1), pa.array([], pa.large_string()))
        return _worded(pa.array(self.data) if isinstance(self.data, np.ndarray) else self.data)

    def times(self) -> Times:
        """The cells as moments; words are read as ISO 8601 has them."""
        if self.sort == "nothing":
            return Times(np.zeros(len(self), np.int64), np.zeros(len(self), bool), None)
        if isinstance(self.data, np.ndarray) or self.sort in ("number", "boolean"):
            raise DataError(f"column {self.name!r} is to hold dates; numbers came", help="turn them into dates first")
        moments = as_moments(self.data) if self.sort == "date" else self._read_moments(self.words())
        known = pc.is_valid(moments).to_numpy(zero_copy_only=False)
        plain = pc.fill_null(moments.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
        return Times(plain, known, moments.type.tz)

    def _floats(self) -> np.ndarray:
        if self.sort == "nothing":
            return np.full(len(self), np.nan)
        if self.sort == "date":
            raise DataError(f"column {self.name!r} is to hold numbers; dates came")
        if self.sort == "words":
            return self._read_numbers(self.words())
        return self.data.astype(np.float64) if isinstance(self.data, np.ndarray) else as_numbers(self.data)

    def _read_numbers(self, words: Words) -> np.ndarray:
        found = numbers_in(words.values)
        if found is None:
            odd = next(
                place
                for place, word in enumerate(words.values.to_pylist())
                if word.strip() and not NUMBER.fullmatch(word)
            )
            raise self._odd(words, odd, "numbers")
        return np.append(found, np.nan)[words.codes]

    def _read_moments(self, words: Words) -> pa.Array:
        found = moments_in(words.values)
        if found is None:
            raise self._no_moments(words)
        return found.take(pa.array(words.codes, mask=words.codes < 0))

    def _no_moments(self, words: Words) -> DataError:
        """The error for words that are not all moments, or that are so each by itself and not together."""
        alone = [moments_in(words.values[place : place + 1]) for place in range(len(words.values))]
        odd = [place for place, one in enumerate(alone) if one is None]
        if odd:
            return self._odd(words, odd[0], "dates as 2024-02-29 or 2024-02-29T12:30")
        zoned = [None if one.null_count else one.type.tz is not None for one in alone if one is not None]
        return mixed_zones(self.name, *(int((words.codes == zoned.index(has)).argmax()) for has in (True, False)))

    def _odd(self, words: Words, place: int, wanted: str) -> DataError:
        row, cell = int((words.codes == place).argmax()), words.values[place].as_py()
        told = shlex.quote(f"{self.name}=category")
        return CellError(
            f"column {self.name!r} is to hold {wanted}; {cell!r:.60} came",
            name=self.name,
            cell=cell,
            row=row,
            help="mend the cell or empty it; before learning, "
            f"kinds={{{self.name!r}: 'category'}}, or --kinds {told}, takes any words",
        )


class CellError(DataError):
    """A cell is not what its column is to hold. Where it lies in a file, `bad_cells` finds out."""

    def __init__(self, said: str, *, name: str = "", cell: str = "", row: int | None = None, help: str = "") -> None:
        super().__init__(said if row is None else f"{said} in row {row:,}", help=help)
        self.said, self.name, self.cell = said, name, cell


def infinite(name: str, row: int, value: float) -> CellError:
    """The error for a cell that is infinite, in the words of scikit-learn."""
    return CellError(
        f"Input X contains infinity or a value too large for a number: column {name!r} holds {value}",
        name=name,
        cell=str(value),
        row=row,
        help="replace it, or leave the cell empty: a missing number is fine",
    )


def mixed_zones(name: str, zoned: int, bare: int) -> DataError:
    """The error for a column of times of which some have a time zone, as in one row, and some none, as in another."""
    return DataError(
        f"column {name!r} is to hold times with a time zone or times without; row {zoned:,} has one, row {bare:,} none",
        why="an hour would mean something else from row to row",
        help="give all of them a time zone, or none",
    )


def _plain(name: str, data: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One array of a type that is known here."""
    data = whole(data) if isinstance(data, pa.ChunkedArray) else data
    data = data.storage if isinstance(data, pa.ExtensionArray) else data
    if pa.types.is_run_end_encoded(data.type):
        return _plain(name, pc.run_end_decode(data))
    kind = data.type.value_type if pa.types.is_dictionary(data.type) else data.type
    if _sort_of(kind) is None:
        # The words are those that scikit-learn's own checks look for.
        raise TypeError(f"column {name!r} holds {kind}: each argument must be a string, a date or a number")
    return data.cast(pa.large_string()) if _sort_of(data.type) == "words" else data


def _decoded(data: pa.DictionaryArray) -> pa.Array:
    found = data.dictionary_decode()
    return found.cast(pa.large_string()) if _sort_of(found.type) == "words" else found


def _sort(data: np.ndarray | pa.Array) -> Sort:
    if isinstance(data, np.ndarray):
        if data.dtype.kind == "f" and np.isnan(data).all():
            return "nothing"
        return "boolean" if data.dtype.kind == "b" else "number"
    is_empty = data.null_count == len(data)
    if is_empty or (pa.types.is_floating(data.type) and pc.all(pc.is_null(data, nan_is_null=True)).as_py()):
        return "nothing"
    return _sort_of(data.type) or "nothing"


def _sort_of(kind: pa.DataType) -> Sort | None:
    types = pa.types
    if types.is_null(kind):
        return "nothing"
    if types.is_boolean(kind):
        return "boolean"
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "words"
    if types.is_timestamp(kind) or types.is_date(kind):
        return "date"
    numbers = (types.is_integer, types.is_floating, types.is_decimal, types.is_time, types.is_duration)
    return "number" if any(is_so(kind) for is_so in numbers) else None


def _worded(data: pa.Array) -> Words:
    """Distinct values first, so that only they are written out as words."""
    if pa.types.is_floating(data.type):
        data = pc.if_else(pc.is_nan(data), pa.scalar(None, data.type), data)
    coded = data.dictionary_encode()
    codes = pc.fill_null(coded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    if pa.types.is_large_string(data.type):
        return Words(codes, coded.dictionary)
    merged = written(coded.dictionary).dictionary_encode()  # 0.0 and -0.0 are two values and one word
    places = np.append(merged.indices.to_numpy(zero_copy_only=False).astype(np.int64), -1)
    return Words(places[codes], merged.dictionary)
