"""Formatting of counts, percentages and column descriptions."""

from collections.abc import Sequence
from typing import Any


def fraction(part: int, whole: int) -> float:
    """part / whole; 0 if whole is 0."""
    return part / whole if whole else 0.0


def percent(value: float) -> str:
    """A fraction as a percentage.

    >>> percent(0.031), percent(0.004), percent(0.00001)
    ('3 %', '0.4 %', 'under 0.1 %')
    """
    percentage = 100 * value
    if percentage < 0.1:
        return "under 0.1 %"
    return f"{percentage:.0f} %" if percentage >= 1 else f"{percentage:.1f} %"


def plural(count: int, noun: str) -> str:
    """A count with its noun.

    >>> plural(1, "block"), plural(2_000, "row")
    ('1 block', '2,000 rows')
    """
    return f"{count:,} {noun}{'s' * (count != 1)}"


def join_names(names: Sequence[Any], limit: int = 8) -> str:
    """Names or values for an error message: the first ones, and how many more there are.

    >>> join_names(["age", "city", "income"], limit=2)
    "'age', 'city' and 1 more"
    """
    more = f" and {len(names) - limit:,} more" if len(names) > limit else ""
    return ", ".join(f"{name!r:.80}" for name in names[:limit]) + more


def describe_column(name: str, column_type: str, *details: str, missing: float = 0.0) -> str:
    """One line about a column.

    >>> describe_column("age", "number", missing=0.03)
    'age: number, 3 % missing'
    """
    if missing == 1.0:
        return f"{name}: {column_type}, all missing: it carries no information"
    absent = f"{percent(missing)} missing" if missing else ""
    return ", ".join(filter(None, (f"{name}: {column_type}", *details, absent)))
