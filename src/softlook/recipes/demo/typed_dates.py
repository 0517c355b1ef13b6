"""Dates as people type them: English with ordinals, abbreviations, weekdays and short years, and numbers only.

Orders of numbers that have two readings are left out: 5/1/2021 is in May in the United States and in January elsewhere.
A date without a year or a day has ISO 8601's reduced form: --01-05, 2021-01.
"""

import random
from collections.abc import Callable
from datetime import date

MONTHS = """
    January February March April May June July August September October November December
"""
NAMES = tuple(MONTHS.split())
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
SHORT_MONTHS = {name: (name[:3],) for name in NAMES} | {"September": ("Sep", "Sept")}
SHORT_WEEKDAYS = {name: (name[:3],) for name in WEEKDAYS} | {"Tuesday": ("Tue", "Tues"), "Thursday": ("Thu", "Thurs")}
CASES: tuple[Callable[[str], str], ...] = (str, str, str, str.lower, str.lower, str.upper)
"""Most people type capitals as in print, many none, some only capitals."""


def ordinal(number: int) -> str:
    """
    >>> [ordinal(number) for number in (1, 2, 3, 4, 11, 12, 13, 21, 30)]
    ['1st', '2nd', '3rd', '4th', '11th', '12th', '13th', '21st', '30th']
    """
    suffix = "th" if number in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


def type_date(day: date, rng: random.Random) -> tuple[str, str]:
    """A date as somebody might type it, and its ISO form.

    >>> [type_date(date(2021, 1, 5), random.Random(seed)) for seed in (0, 5)]
    [('5th of jan, 2021', '2021-01-05'), ('JAN 05, 2021', '2021-01-05')]
    """
    kind = rng.random()
    if kind < 0.30:
        return _numeric(day, rng), day.isoformat()
    if kind < 0.36:
        month, case = _month(day, rng), rng.choice(CASES)
        return case(f"{month}{_comma(rng)} {day.year}"), f"{day:%Y-%m}"
    if kind < 0.44:
        return rng.choice(CASES)(_day_and_month(day, rng)), f"--{day:%m-%d}"
    return rng.choice(CASES)(_worded(day, rng)), day.isoformat()


def _worded(day: date, rng: random.Random) -> str:
    """Weekday or not, day and month in either order, and the year."""
    year = f"{day.year}" if rng.random() < 0.85 else f"{rng.choice(('', chr(39)))}{day:%y}"
    if rng.random() < 0.06:
        return f"{day.year}{_comma(rng)} {_month(day, rng)} {_number(day, rng)}"
    if rng.random() < 0.08:
        separator = rng.choice("-/. ")
        return f"{_padded(day.day, rng)}{separator}{_short_month(day, rng)}{separator}{year}"
    text = f"{_day_and_month(day, rng)}{_comma(rng)} {year}"
    return f"{_weekday(day, rng)}{_comma(rng)} {text}" if rng.random() < 0.3 else text


def _day_and_month(day: date, rng: random.Random) -> str:
    month, number = _month(day, rng), _number(day, rng)
    if rng.random() < 0.5:
        return f"{month} {rng.choice(('', '', '', 'the ')) if number[-1].isalpha() else ''}{number}"
    is_spoken = number[-1].isalpha() and rng.random() < 0.5
    return f"{rng.choice(('', '', 'the '))}{number} of {month}" if is_spoken else f"{number} {month}"


def _numeric(day: date, rng: random.Random) -> str:
    """Numbers only, in an order that has one reading."""
    month, number = _padded(day.month, rng), _padded(day.day, rng)
    year = f"{day.year}" if rng.random() < 0.8 else f"{day:%y}"
    separator = rng.choice("--/.")
    forms = [f"{number}.{month}.{year}", f"{day.year}{separator}{day:%m}{separator}{day:%d}", f"{day:%Y%m%d}"]
    if day.day > 12 or day.day == day.month:
        slash = rng.choice("/-")
        forms += [f"{month}{slash}{number}{slash}{year}", f"{number}{slash}{month}{slash}{year}"]
    return rng.choice(forms)


def _month(day: date, rng: random.Random) -> str:
    return NAMES[day.month - 1] if rng.random() < 0.5 else _short_month(day, rng) + rng.choice(("", "", "."))


def _short_month(day: date, rng: random.Random) -> str:
    return rng.choice(SHORT_MONTHS[NAMES[day.month - 1]])


def _weekday(day: date, rng: random.Random) -> str:
    name = WEEKDAYS[day.weekday()]
    return name if rng.random() < 0.5 else rng.choice(SHORT_WEEKDAYS[name])


def _number(day: date, rng: random.Random) -> str:
    return ordinal(day.day) if rng.random() < 0.55 else _padded(day.day, rng)


def _padded(number: int, rng: random.Random) -> str:
    return f"{number:02}" if rng.random() < 0.35 else str(number)


def _comma(rng: random.Random) -> str:
    return "," if rng.random() < 0.5 else ""
