"""Counts, shares and names in words, and a line about a column."""

from collections.abc import Sequence
from typing import Any


def share(part: int, whole: int) -> float:
    """A part of a whole; of nothing, none."""
    return part / whole if whole else 0.0


def percent(part: float) -> str:
    """A share as people write it.

    >>> percent(0.031), percent(0.004), percent(0.00001)
    ('3 %', '0.4 %', 'under 0.1 %')
    """
    hundredth = 100 * part
    if hundredth < 0.1:
        return "under 0.1 %"
    return f"{hundredth:.0f} %" if hundredth >= 1 else f"{hundredth:.1f} %"


def many(count: int, what: str) -> str:
    """So many of something.

    >>> many(1, "block"), many(2_000, "row")
    ('1 block', '2,000 rows')
    """
    return f"{count:,} {what}{'s' * (count != 1)}"


def named(names: Sequence[Any], most: int = 8) -> str:
    """Names, or values, as an error lists them: the first few, and how many more there are.

    >>> named(["age", "city", "income"], most=2)
    "'age', 'city' and 1 more"
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(f"{name!r:.80}" for name in names[:most]) + more


def told(name: str, kind: str, *more: str, missing: float = 0.0) -> str:
    """A line about a column.

    >>> told("age", "number", missing=0.03)
    'age: number, 3 % missing'
    """
    if missing == 1.0:
        return f"{name}: {kind}, all missing: it carries nothing"
    absent = f"{percent(missing)} missing" if missing else ""
    return ", ".join(filter(None, (f"{name}: {kind}", *more, absent)))
