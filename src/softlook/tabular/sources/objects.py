"""Python's own values, as lists and columns of objects hold them, as one array of one type."""

from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import pyarrow as pa

from softlook.tabular.sources.cells import mixed_zones
from softlook.tabular.sources.parsing import number_word

FAULTS = (pa.ArrowException, OverflowError, TypeError, ValueError)


def array_of(name: str, values: Sequence[Any]) -> pa.Array | np.ndarray:
    """A list of numbers, words, dates or missing values as an array; where they are mixed, all as words.

    >>> array_of("age", [3, None, 2.5]).to_pylist(), array_of("size", [38, "L", None, 39.0]).to_pylist()
    ([3.0, None, 2.5], ['38', 'L', None, '39'])
    """
    try:
        found = pa.array(values, from_pandas=True)
    except FAULTS:
        return _mixed(name, [None if is_missing(value) else _python(value) for value in values])
    # found has cut datetimes to days where a day came first, and has taken the first one's time zone for all
    return _moments(name, values) if pa.types.is_date(found.type) or pa.types.is_timestamp(found.type) else found


def _mixed(name: str, present: Sequence[Any]) -> pa.Array | np.ndarray:
    if all(value is None or isinstance(value, date) for value in present):
        return _moments(name, present)
    if all(value is None or isinstance(value, timedelta) for value in present):
        return pa.array(present)
    if all(value is None or isinstance(value, Real | Decimal) for value in present):
        return np.array([np.nan if value is None else _float(value) for value in present])
    return pa.array([None if value is None else _word(name, value) for value in present], pa.large_string())


def _python(value: Any) -> Any:
    """numpy's moments and durations as Python's own: of pyarrow's units they may not be."""
    is_time = isinstance(value, np.datetime64 | np.timedelta64)
    return value.astype(f"{value.dtype.kind}8[us]").item() if is_time else value


def _moments(name: str, values: Sequence[Any]) -> pa.Array:
    """Days and times; a day is its midnight, on the clock of no time zone."""
    present = [None if is_missing(value) else _moment(value) for value in values]
    zoned = [None if value is None else getattr(value, "tzinfo", None) is not None for value in present]
    if True in zoned and False in zoned:
        raise mixed_zones(name, zoned.index(True), zoned.index(False))
    return pa.array(present, from_pandas=True)


def _moment(value: Any) -> Any:
    return datetime(value.year, value.month, value.day) if type(value) is date else value


def is_missing(value: Any) -> bool:
    """Whether this is None, or any library's word for it.

    >>> is_missing(float("nan")), is_missing(np.datetime64("NaT")), is_missing("")
    (True, True, False)
    """
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, Real | Decimal | np.datetime64) and bool(value != value)


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return np.inf if value > 0 else -np.inf


def _word(name: str, value: Any) -> str:
    ways: list[tuple[Any, Callable[[Any], str]]] = [
        (str, str),
        (bool | np.bool_, lambda truth: str(bool(truth)).lower()),
        (int | np.integer, lambda number: str(int(number))),
        (Real | Decimal, lambda number: number_word(float(number))),
        (date | timedelta, str),
    ]
    for kind, way in ways:
        if isinstance(value, kind):
            return way(value)
    # The words are those that scikit-learn's own checks look for.
    raise TypeError(
        f"column {name!r} holds a {type(value).__name__}: each argument must be a string, a date or a number"
    )
