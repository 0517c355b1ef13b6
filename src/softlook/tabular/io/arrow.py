"""pyarrow helpers: numbers, timestamps and strings in columns.

`pc` is `pyarrow.compute`; its functions are created at import time, so no type checker sees them.
"""

import re
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute

pc: Any = compute

NUMBER = re.compile(r"\s*[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?\s*")
DOTTED_DATE = (
    (r"^(\d{1,2})\.(\d{1,2})\.(\d{4})(\D|$)", r"\3-0\2-0\1\4"),
    (r"^(\d{4})-0?(\d\d)-0?(\d\d)", r"\1-\2-\3"),
)
"""Two substitutions that turn DD.MM.YYYY into ISO 8601: reorder with leading zeros, then trim to two digits each."""
TIMESTAMP = pa.timestamp("us")
UNITS_PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}


def to_arrow(column: Any) -> Any:
    """A numpy column as a pyarrow array in which NaN is null; a pyarrow column is returned as is."""
    return pa.array(column, from_pandas=True) if isinstance(column, np.ndarray) else column


def combine_chunks(column: pa.ChunkedArray) -> pa.Array:
    """A chunked column as one contiguous array."""
    if pa.types.is_string(column.type):
        column = column.cast(pa.large_string())  # the combined strings may exceed 2 GB
    combined = column.unify_dictionaries().combine_chunks()
    return pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined


def to_ordered_categories(values: pa.Array, order: pa.Array) -> pa.Array:
    """Values as an ordered dictionary array, lowest category first."""
    order = order.cast(values.type)
    return pa.DictionaryArray.from_arrays(pc.index_in(values, value_set=order), order, ordered=True)


def to_float64(data: pa.Array) -> np.ndarray:
    """float64 with NaN for nulls; times of day and durations become seconds.

    >>> from decimal import Decimal
    >>> to_float64(pa.array([Decimal("0.1"), None])).tolist()
    [0.1, nan]
    """
    dtype = data.type
    if pa.types.is_decimal(dtype):  # through the digits, which gives the nearest float; arithmetic does not always
        data = data.cast(pa.string()).cast(pa.float64())
    elif pa.types.is_time(dtype) or pa.types.is_duration(dtype):
        integer = pa.int32() if pa.types.is_time32(dtype) else pa.int64()
        return to_float64(data.cast(integer)) / UNITS_PER_SECOND[dtype.unit]
    elif pa.types.is_boolean(dtype):
        data = data.cast(pa.int8())
    return data.to_numpy(zero_copy_only=False).astype(np.float64)


def to_timestamps(data: pa.Array) -> pa.Array:
    """Dates and timestamps of any unit as microseconds, in their own time zone; finer units are truncated."""
    if pa.types.is_date(data.type):
        return data.cast(TIMESTAMP)
    return data.cast(pa.timestamp("us", data.type.tz), safe=False)


def parse_floats(strings: pa.Array) -> np.ndarray | None:
    """Strings parsed as floats, NaN for blank ones; None if any string is not a number.

    >>> parse_floats(pa.array(["1.5", " ", "-2"])).tolist(), parse_floats(pa.array(["1", "one"]))
    ([1.5, nan, -2.0], None)
    """
    floats = np.empty(len(strings))
    for index, string in enumerate(strings.to_pylist()):
        if NUMBER.fullmatch(string):
            floats[index] = float(string)
        elif string.isspace() or not string:
            floats[index] = np.nan
        else:
            return None
    return floats


def parse_timestamps(strings: pa.Array) -> pa.Array | None:
    """Strings parsed as ISO 8601 or DD.MM.YYYY timestamps, null for blank ones; None if any does not parse.

    Dates with slashes are not parsed: day and month cannot be told apart.

    >>> parse_timestamps(pa.array(["2024-02-29", "2024-02-29T12:30:00", ""])).to_pylist()
    [datetime.datetime(2024, 2, 29, 0, 0), datetime.datetime(2024, 2, 29, 12, 30), None]
    >>> parse_timestamps(pa.array(["1.2.2024", "29.02.2024 12:30"])).to_pylist()
    [datetime.datetime(2024, 2, 1, 0, 0), datetime.datetime(2024, 2, 29, 12, 30)]
    """
    trimmed = pc.utf8_trim_whitespace(strings)
    if pc.any(pc.match_substring_regex(trimmed, DOTTED_DATE[0][0])).as_py():
        for pattern, replacement in DOTTED_DATE:
            trimmed = pc.replace_substring_regex(trimmed, pattern, replacement)
    nonblank = pc.if_else(pc.equal(pc.utf8_length(trimmed), 0), pa.scalar(None, trimmed.type), trimmed)
    for dtype in (TIMESTAMP, pa.timestamp("us", "UTC")):
        try:
            return nonblank.cast(dtype)
        except pa.ArrowInvalid:
            continue
    return None


def to_strings(values: pa.Array) -> pa.Array:
    """Values as strings that do not depend on the dtype: 3 and 3.0 are both '3'.

    >>> to_strings(pa.array([3.0, 0.5])).to_pylist(), to_strings(pa.array([True])).to_pylist()
    (['3', '0.5'], ['true'])
    """
    dtype = values.type
    if pa.types.is_large_string(dtype):
        return values
    if pa.types.is_integer(dtype) or pa.types.is_boolean(dtype) or pa.types.is_string(dtype) or pa.types.is_null(dtype):
        return values.cast(pa.large_string())
    if pa.types.is_timestamp(dtype) or pa.types.is_date(dtype):
        return to_timestamps(values).cast(pa.large_string())
    floats = to_float64(values).tolist()
    return pa.array([None if value != value else format_number(value) for value in floats], pa.large_string())


def format_number(value: float) -> str:
    """The shortest string that parses back to the same number.

    >>> format_number(3.0), format_number(0.1), format_number(1e300)
    ('3', '0.1', '1e+300')
    """
    return str(int(value)) if abs(value) < 2**63 and value == int(value) else repr(value)
