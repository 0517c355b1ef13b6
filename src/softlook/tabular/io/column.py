"""One column of a table as floats, strings or timestamps.

Equal content reads equal, bit for bit, whatever library it comes from: a missing cell may be None, NaN, NaT or null;
strings may be plain, categorical or dictionary-encoded; integers may be floats because one cell is missing.
"""

import shlex
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from softlook.base.errors import DataError
from softlook.tabular.io.arrow import (
    NUMBER,
    combine_chunks,
    parse_floats,
    parse_timestamps,
    pc,
    to_float64,
    to_strings,
    to_timestamps,
)

ValueType = Literal["empty", "number", "boolean", "date", "string"]


class StringCodes(NamedTuple):
    """A dictionary-encoded string column."""

    codes: np.ndarray
    """(N,) integers, -1 for a missing cell."""
    values: pa.Array
    """The distinct strings."""

    def counts(self) -> np.ndarray:
        """How often each string occurs."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.values))


class Timestamps(NamedTuple):
    """A column of timestamps."""

    micros: np.ndarray
    """(N,) integer microseconds since 1970, 0 for a missing cell."""
    is_valid: np.ndarray
    """(N,) False for a missing cell."""
    timezone: str | None
    """Time zone; None for naive timestamps (local wall-clock time)."""


class Column:
    """A named column: a numpy array of numbers, or a pyarrow array.

    >>> column = Column("size", pa.array(["S", None, "L", "S"]))
    >>> column.value_type, column.strings().codes.tolist(), column.strings().values.to_pylist()
    ('string', [0, -1, 1, 0], ['S', 'L'])
    """

    def __init__(self, name: str, data: np.ndarray | pa.Array | pa.ChunkedArray) -> None:
        self.name = name
        array: Any = data if isinstance(data, np.ndarray) else _plain_array(name, data)
        self.is_categorical = isinstance(array, pa.DictionaryArray)
        """True if the table itself declares the column categorical."""
        self.category_order: pa.Array | None = array.dictionary if self.is_categorical and array.type.ordered else None
        """The categories in order, if the table declares one."""
        self.data: np.ndarray | pa.Array = _decode(array) if self.is_categorical else array
        self.value_type: ValueType = _value_type(self.data)
        """What the column holds, by its dtype."""

    def __len__(self) -> int:
        return len(self.data)

    def is_missing(self) -> np.ndarray:
        """(N,) True for a missing cell."""
        if isinstance(self.data, np.ndarray):
            return np.isnan(self.data) if self.data.dtype.kind == "f" else np.zeros(len(self), dtype=bool)
        return pc.is_null(self.data, nan_is_null=True).to_numpy(zero_copy_only=False)

    def floats(self) -> np.ndarray:
        """(N,) float64 with NaN for missing cells; strings are parsed. Raises an error for infinite values."""
        floats = self._to_floats()
        if np.isinf(floats).any():
            row = int(np.isinf(floats).argmax())
            raise infinite_value_error(self.name, row, float(floats[row]))
        return floats

    def strings(self) -> StringCodes:
        """The cells as strings, whatever their dtype: 3 and 3.0 are both '3', True is 'true'."""
        if self.value_type == "empty":
            return StringCodes(np.full(len(self), -1), pa.array([], pa.large_string()))
        return _encode_strings(pa.array(self.data) if isinstance(self.data, np.ndarray) else self.data)

    def timestamps(self) -> Timestamps:
        """The cells as timestamps; strings are parsed as ISO 8601."""
        if self.value_type == "empty":
            return Timestamps(np.zeros(len(self), np.int64), np.zeros(len(self), bool), None)
        if isinstance(self.data, np.ndarray) or self.value_type in ("number", "boolean"):
            raise DataError(f"column {self.name!r}: expected dates, got numbers", help="convert them to dates first")
        parsed = to_timestamps(self.data) if self.value_type == "date" else self._parse_timestamps(self.strings())
        is_valid = pc.is_valid(parsed).to_numpy(zero_copy_only=False)
        micros = pc.fill_null(parsed.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
        return Timestamps(micros, is_valid, parsed.type.tz)

    def _to_floats(self) -> np.ndarray:
        if self.value_type == "empty":
            return np.full(len(self), np.nan)
        if self.value_type == "date":
            raise DataError(f"column {self.name!r}: expected numbers, got dates")
        if self.value_type == "string":
            return self._parse_floats(self.strings())
        return self.data.astype(np.float64) if isinstance(self.data, np.ndarray) else to_float64(self.data)

    def _parse_floats(self, strings: StringCodes) -> np.ndarray:
        floats = parse_floats(strings.values)
        if floats is None:
            bad = next(
                index
                for index, string in enumerate(strings.values.to_pylist())
                if string.strip() and not NUMBER.fullmatch(string)
            )
            raise self._cell_error(strings, bad, "numbers")
        return np.append(floats, np.nan)[strings.codes]

    def _parse_timestamps(self, strings: StringCodes) -> pa.Array:
        parsed = parse_timestamps(strings.values)
        if parsed is None:
            raise self._timestamp_error(strings)
        return parsed.take(pa.array(strings.codes, mask=strings.codes < 0))

    def _timestamp_error(self, strings: StringCodes) -> DataError:
        """The error for strings that are not all timestamps, or that mix time zones with none."""
        each = [parse_timestamps(strings.values[index : index + 1]) for index in range(len(strings.values))]
        bad = [index for index, one in enumerate(each) if one is None]
        if bad:
            return self._cell_error(strings, bad[0], "dates as 2024-02-29 or 2024-02-29T12:30")
        zoned = [None if one.null_count else one.type.tz is not None for one in each if one is not None]
        rows = (int((strings.codes == zoned.index(has)).argmax()) for has in (True, False))
        return mixed_timezones_error(self.name, *rows)

    def _cell_error(self, strings: StringCodes, index: int, expected: str) -> DataError:
        row, cell = int((strings.codes == index).argmax()), strings.values[index].as_py()
        flag = shlex.quote(f"{self.name}=category")
        return CellError(
            f"column {self.name!r}: expected {expected}, got {cell!r:.60}",
            name=self.name,
            cell=cell,
            row=row,
            help="correct or empty the cell; before training, "
            f"column_types={{{self.name!r}: 'category'}}, or --column-types {flag}, accepts any string",
        )


class CellError(DataError):
    """A cell does not match the type of its column. `io.chunked.locate_cell_errors` locates it in a file."""

    def __init__(self, message: str, *, name: str = "", cell: str = "", row: int | None = None, help: str = "") -> None:
        super().__init__(message if row is None else f"{message} in row {row:,}", help=help)
        self.message, self.name, self.cell = message, name, cell


def infinite_value_error(name: str, row: int, value: float) -> CellError:
    """The error for an infinite cell, with scikit-learn's wording."""
    return CellError(
        f"Input X contains infinity or a value too large for a number: column {name!r} holds {value}",
        name=name,
        cell=str(value),
        row=row,
        help="replace it or leave the cell empty: missing numbers are supported",
    )


def mixed_timezones_error(name: str, zoned_row: int, naive_row: int) -> DataError:
    """The error for a column in which some timestamps have a time zone and some have none."""
    return DataError(
        f"column {name!r} mixes timestamps with and without a time zone: row {zoned_row:,} has one, "
        f"row {naive_row:,} has none",
        why="the hour would have a different meaning from row to row",
        help="give all of them a time zone, or none",
    )


def _plain_array(name: str, data: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One contiguous array of a supported type."""
    data = combine_chunks(data) if isinstance(data, pa.ChunkedArray) else data
    data = data.storage if isinstance(data, pa.ExtensionArray) else data
    if pa.types.is_run_end_encoded(data.type):
        return _plain_array(name, pc.run_end_decode(data))
    dtype = data.type.value_type if pa.types.is_dictionary(data.type) else data.type
    if _value_type_of(dtype) is None:
        # scikit-learn's own checks look for this wording
        raise TypeError(f"column {name!r} holds {dtype}: each argument must be a string, a date or a number")
    return data.cast(pa.large_string()) if _value_type_of(data.type) == "string" else data


def _decode(data: pa.DictionaryArray) -> pa.Array:
    decoded = data.dictionary_decode()
    return decoded.cast(pa.large_string()) if _value_type_of(decoded.type) == "string" else decoded


def _value_type(data: np.ndarray | pa.Array) -> ValueType:
    if isinstance(data, np.ndarray):
        if data.dtype.kind == "f" and np.isnan(data).all():
            return "empty"
        return "boolean" if data.dtype.kind == "b" else "number"
    is_null = data.null_count == len(data)
    if is_null or (pa.types.is_floating(data.type) and pc.all(pc.is_null(data, nan_is_null=True)).as_py()):
        return "empty"
    return _value_type_of(data.type) or "empty"


def _value_type_of(dtype: pa.DataType) -> ValueType | None:
    types = pa.types
    if types.is_null(dtype):
        return "empty"
    if types.is_boolean(dtype):
        return "boolean"
    if types.is_string(dtype) or types.is_large_string(dtype) or types.is_string_view(dtype):
        return "string"
    if types.is_timestamp(dtype) or types.is_date(dtype):
        return "date"
    numeric = (types.is_integer, types.is_floating, types.is_decimal, types.is_time, types.is_duration)
    return "number" if any(is_type(dtype) for is_type in numeric) else None


def _encode_strings(data: pa.Array) -> StringCodes:
    """Dictionary-encode first, so that only distinct values are formatted."""
    if pa.types.is_floating(data.type):
        data = pc.if_else(pc.is_nan(data), pa.scalar(None, data.type), data)
    encoded = data.dictionary_encode()
    codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    if pa.types.is_large_string(data.type):
        return StringCodes(codes, encoded.dictionary)
    merged = to_strings(encoded.dictionary).dictionary_encode()  # 0.0 and -0.0 are two values and one string
    indices = np.append(merged.indices.to_numpy(zero_copy_only=False).astype(np.int64), -1)
    return StringCodes(indices[codes], merged.dictionary)
