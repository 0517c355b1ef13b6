"""Values as numbers, as moments and as words, whole arrays at a time."""

import re

import numpy as np
import pyarrow as pa

from softlook.tabular.sources.arrow import pc

NUMBER = re.compile(r"\s*[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?\s*")
POINTED = (
    (r"^(\d{1,2})\.(\d{1,2})\.(\d{4})(\D|$)", r"\3-0\2-0\1\4"),
    (r"^(\d{4})-0?(\d\d)-0?(\d\d)", r"\1-\2-\3"),
)
"""Day, month, year with points between them, and what to make of it: first a nought too many, then two digits each."""
MOMENT = pa.timestamp("us")
UNITS = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}


def as_numbers(data: pa.Array) -> np.ndarray:
    """float64, NaN where there is no value; times of day and durations are seconds.

    >>> from decimal import Decimal
    >>> as_numbers(pa.array([Decimal("0.1"), None])).tolist()
    [0.1, nan]
    """
    kind = data.type
    if pa.types.is_decimal(kind):  # by way of its digits: the nearest float, which arithmetic does not always give
        data = data.cast(pa.string()).cast(pa.float64())
    elif pa.types.is_time(kind) or pa.types.is_duration(kind):
        whole = pa.int32() if pa.types.is_time32(kind) else pa.int64()
        return as_numbers(data.cast(whole)) / UNITS[kind.unit]
    elif pa.types.is_boolean(kind):
        data = data.cast(pa.int8())
    return data.to_numpy(zero_copy_only=False).astype(np.float64)


def as_moments(data: pa.Array) -> pa.Array:
    """Dates and timestamps of any unit as microseconds, in the time zone they were told in."""
    if pa.types.is_date(data.type):
        return data.cast(MOMENT)
    return data.cast(pa.timestamp("us", data.type.tz), safe=False)  # what is finer is cut off


def numbers_in(words: pa.Array) -> np.ndarray | None:
    """The numbers that words write, NaN for blank ones; None where a word is no number.

    >>> numbers_in(pa.array(["1.5", " ", "-2"])).tolist(), numbers_in(pa.array(["1", "one"]))
    ([1.5, nan, -2.0], None)
    """
    found = np.empty(len(words))
    for place, word in enumerate(words.to_pylist()):
        if NUMBER.fullmatch(word):
            found[place] = float(word)
        elif word.isspace() or not word:
            found[place] = np.nan
        else:
            return None
    return found


def moments_in(words: pa.Array) -> pa.Array | None:
    """The moments that words write as ISO 8601 has them, null for blank ones; None where a word is none.

    With points between them, day, month and year stand in this order. With slashes nobody can tell day from month.

    >>> moments_in(pa.array(["2024-02-29", "2024-02-29T12:30:00", ""])).to_pylist()
    [datetime.datetime(2024, 2, 29, 0, 0), datetime.datetime(2024, 2, 29, 12, 30), None]
    >>> moments_in(pa.array(["1.2.2024", "29.02.2024 12:30"])).to_pylist()
    [datetime.datetime(2024, 2, 1, 0, 0), datetime.datetime(2024, 2, 29, 12, 30)]
    """
    trimmed = pc.utf8_trim_whitespace(words)
    if pc.any(pc.match_substring_regex(trimmed, POINTED[0][0])).as_py():
        for pattern, better in POINTED:
            trimmed = pc.replace_substring_regex(trimmed, pattern, better)
    told = pc.if_else(pc.equal(pc.utf8_length(trimmed), 0), pa.scalar(None, trimmed.type), trimmed)
    for kind in (MOMENT, pa.timestamp("us", "UTC")):
        try:
            return told.cast(kind)
        except pa.ArrowInvalid:
            continue
    return None


def written(values: pa.Array) -> pa.Array:
    """Values as words, each the same however its number was held: 3 and 3.0 are both '3'.

    >>> written(pa.array([3.0, 0.5])).to_pylist(), written(pa.array([True])).to_pylist()
    (['3', '0.5'], ['true'])
    """
    kind = values.type
    if pa.types.is_large_string(kind):
        return values
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_string(kind) or pa.types.is_null(kind):
        return values.cast(pa.large_string())
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return as_moments(values).cast(pa.large_string())
    numbers = as_numbers(values).tolist()
    return pa.array([None if value != value else number_word(value) for value in numbers], pa.large_string())


def number_word(value: float) -> str:
    """A number as the shortest word that reads as the same number.

    >>> number_word(3.0), number_word(0.1), number_word(1e300)
    ('3', '0.1', '1e+300')
    """
    return str(int(value)) if abs(value) < 2**63 and value == int(value) else repr(value)
