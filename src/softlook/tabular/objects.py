"""Python's own values, as lists and columns of objects hold them, as one array of one type."""

from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import pyarrow as pa

from softlook.tabular.parsing import number_word

FAULTS = (pa.ArrowException, OverflowError, TypeError, ValueError)


def array_of(name: str, values: Sequence[Any]) -> pa.Array | np.ndarray:
    """A list of numbers, words, dates or missing values as an array; where they are mixed, all as words.

    >>> array_of("age", [3, None, 2.5]).to_pylist(), array_of("size", [38, "L", None, 39.0]).to_pylist()
    ([3.0, None, 2.5], ['38', 'L', None, '39'])
    """
    try:
        found = pa.array(values, from_pandas=True)
        if not pa.types.is_date(found.type):
            return found
        return pa.array([_moment(value) for value in values], from_pandas=True)  # found has cut datetimes to days
    except FAULTS:
        return _mixed(name, values)


def _mixed(name: str, values: Sequence[Any]) -> pa.Array | np.ndarray:
    present = [None if _is_missing(value) else value for value in values]
    if all(value is None or isinstance(value, Real | Decimal) for value in present):
        return np.array([np.nan if value is None else _float(value) for value in present])
    return pa.array([None if value is None else _word(name, value) for value in present], pa.large_string())


def _moment(value: Any) -> Any:
    return datetime(value.year, value.month, value.day) if type(value) is date else value


def _is_missing(value: Any) -> bool:
    return value is None or type(value).__name__ in ("NAType", "NaTType") or (_is_number(value) and value != value)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real | Decimal)


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
