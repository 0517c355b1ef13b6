"""Dates as people write them, in many languages, and as ISO 8601 writes them. Made on the spot from Unicode's CLDR."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache

from babel import Locale
from babel.dates import format_date, format_skeleton

SPOKEN = """
    af bg ca cs da de el en en_GB es et eu fi fr ga hr hu id is it
    ja ko lt lv ms nb nl pl pt ro ru sk sl sv sw tr uk zh
"""
LANGUAGES = tuple(SPOKEN.split())
FORMS = ("full", "long", "medium", "yMMMd", "yMMMEd", "yMMMMd", "yMMMMEEEEd")
FIRST, LAST = date(1950, 1, 1), date(2049, 12, 31)
UNSEEN_DATES = 10
"""One date in so many is never learned from, in any language."""
UNSEEN_FORMS = 12
"""Nor is one way of writing in so many."""


@dataclass(frozen=True)
class Written:
    """A date, written by hand and by the standard."""

    text: str
    iso: str
    language: str
    form: str


@cache
def ways(language: str) -> tuple[str, ...]:
    """The forms in which a language names the month, so that day and month cannot be taken for each other."""
    seen: dict[str, str] = {}
    for form in FORMS:
        text = write(date(2022, 3, 4), language, form)
        if text is not None and any(letter.isalpha() for letter in text):
            seen.setdefault(text, form)
    return tuple(seen.values())


def write(day: date, language: str, form: str) -> str | None:
    """A date as this language writes it in this form; None where it has no such form.

    >>> write(date(2022, 3, 3), "fr", "full")
    'jeudi 3 mars 2022'
    """
    locale = Locale.parse(language)
    if form in ("full", "long", "medium"):
        return _plain(format_date(day, form, locale=locale))
    return _plain(format_skeleton(form, day, locale=locale)) if form in locale.datetime_skeletons else None


def _plain(text: str) -> str:
    """Every kind of space is a space."""
    return " ".join(text.split())


def is_unseen_date(day: date) -> bool:
    """Is this date kept for the test? Scattered over months and years, always the same."""
    return (day.toordinal() * 2_654_435_761) % 2**32 < 2**32 // UNSEEN_DATES


def is_unseen_form(language: str, form: str) -> bool:
    """Is this way of writing kept for the test? Never a language's only one."""
    every = [(name, way) for name in LANGUAGES for way in ways(name)[1:]]
    return (language, form) in every[5::UNSEEN_FORMS]


def learn_from(seed: int) -> Iterator[Written]:
    """Dates to learn from, without end: seen dates in seen forms."""
    dice = random.Random(seed)
    seen = [(name, way) for name in LANGUAGES for way in ways(name) if not is_unseen_form(name, way)]
    while True:
        day = _any_day(dice)
        if not is_unseen_date(day):
            yield _written(day, *dice.choice(seen))


def unseen_dates(count: int, seed: int = 0) -> list[Written]:
    """Dates that were never learned from, in forms that were."""
    dice = random.Random(seed)
    seen = [(name, way) for name in LANGUAGES for way in ways(name) if not is_unseen_form(name, way)]
    return [_written(_unseen_day(dice), *dice.choice(seen)) for _ in range(count)]


def unseen_forms(count: int, seed: int = 0) -> list[Written]:
    """Dates that were never learned from, in forms that their language was never learned in."""
    dice = random.Random(seed)
    unseen = [(name, way) for name in LANGUAGES for way in ways(name) if is_unseen_form(name, way)]
    return [_written(_unseen_day(dice), *dice.choice(unseen)) for _ in range(count)]


def _any_day(dice: random.Random) -> date:
    return FIRST + timedelta(days=dice.randrange((LAST - FIRST).days + 1))


def _unseen_day(dice: random.Random) -> date:
    while not is_unseen_date(day := _any_day(dice)):
        pass
    return day


def _written(day: date, language: str, form: str) -> Written:
    text = write(day, language, form)
    assert text is not None
    return Written(text, day.isoformat(), language, form)
