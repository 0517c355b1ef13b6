"""Dates in many languages and in ISO 8601, generated from Unicode CLDR."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache

from babel import Locale
from babel.dates import format_date, format_skeleton

CODES = """
    af bg ca cs da de el en en_GB es et eu fi fr ga hr hu id is it
    ja ko lt lv ms nb nl pl pt ro ru sk sl sv sw tr uk zh
"""
LANGUAGES = tuple(CODES.split())
FORMATS = ("full", "long", "medium", "yMMMd", "yMMMEd", "yMMMMd", "yMMMMEEEEd")
FIRST, LAST = date(1950, 1, 1), date(2049, 12, 31)
HELD_OUT_DATES = 10
"""One in so many dates is held out, in every language."""
HELD_OUT_FORMS = 12
"""One in so many combinations of language and format is held out."""


@dataclass(frozen=True)
class WrittenDate:
    """A date in a language and format, and in ISO 8601."""

    text: str
    iso: str
    language: str
    format: str


@cache
def formats_of(language: str) -> tuple[str, ...]:
    """The distinct formats in which a language names the month: then day and month cannot be confused."""
    seen: dict[str, str] = {}
    for format in FORMATS:
        text = write_date(date(2022, 3, 4), language, format)
        if text is not None and any(letter.isalpha() for letter in text):
            seen.setdefault(text, format)
    return tuple(seen.values())


def write_date(day: date, language: str, format: str) -> str | None:
    """A date in a language and format; None if the language has no such format.

    >>> write_date(date(2022, 3, 3), "fr", "full")
    'jeudi 3 mars 2022'
    """
    locale = Locale.parse(language)
    if format in ("full", "long", "medium"):
        return _normalize_spaces(format_date(day, format, locale=locale))
    if format in locale.datetime_skeletons:
        return _normalize_spaces(format_skeleton(format, day, locale=locale))
    return None


def _normalize_spaces(text: str) -> str:
    return " ".join(text.split())


def is_held_out_date(day: date) -> bool:
    """Whether a date is in the test set: a fixed pseudo-random selection."""
    return (day.toordinal() * 2_654_435_761) % 2**32 < 2**32 // HELD_OUT_DATES


def is_held_out_form(language: str, format: str) -> bool:
    """Whether a format of a language is in the test set; never a language's only one."""
    candidates = [(name, other) for name in LANGUAGES for other in formats_of(name)[1:]]
    return (language, format) in candidates[5::HELD_OUT_FORMS]


def training_dates(seed: int) -> Iterator[WrittenDate]:
    """An endless stream of training dates in training formats."""
    rng = random.Random(seed)
    forms = _forms(held_out=False)
    while True:
        day = _random_day(rng)
        if not is_held_out_date(day):
            yield _written(day, *rng.choice(forms))


def held_out_dates(count: int, seed: int = 0) -> list[WrittenDate]:
    """Held-out dates in training formats."""
    rng, forms = random.Random(seed), _forms(held_out=False)
    return [_written(_random_held_out_day(rng), *rng.choice(forms)) for _ in range(count)]


def held_out_forms(count: int, seed: int = 0) -> list[WrittenDate]:
    """Held-out dates in formats that are held out for their language."""
    rng, forms = random.Random(seed), _forms(held_out=True)
    return [_written(_random_held_out_day(rng), *rng.choice(forms)) for _ in range(count)]


def _forms(*, held_out: bool) -> list[tuple[str, str]]:
    """All (language, format) of the training set or of the test set."""
    forms = [(name, format) for name in LANGUAGES for format in formats_of(name)]
    return [form for form in forms if is_held_out_form(*form) == held_out]


def _random_day(rng: random.Random) -> date:
    return FIRST + timedelta(days=rng.randrange((LAST - FIRST).days + 1))


def _random_held_out_day(rng: random.Random) -> date:
    while not is_held_out_date(day := _random_day(rng)):
        pass
    return day


def _written(day: date, language: str, format: str) -> WrittenDate:
    text = write_date(day, language, format)
    assert text is not None
    return WrittenDate(text, day.isoformat(), language, format)
