"""Dates of the demo, and its held-out sets."""

import re
from datetime import date, timedelta
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from softlook.recipes.demo.dates import (
    FIRST,
    LANGUAGES,
    LAST,
    formats_of,
    held_out_dates,
    held_out_forms,
    is_held_out_date,
    is_held_out_form,
    training_dates,
    write_date,
)

DAYS = st.integers(0, (LAST - FIRST).days).map(lambda days: FIRST + timedelta(days=days))


def test_every_language_has_a_format() -> None:
    assert len(LANGUAGES) >= 25
    assert all(formats_of(language) for language in LANGUAGES)


def test_dates_are_localized() -> None:
    day = date(2022, 3, 3)
    assert write_date(day, "fr", "full") == "jeudi 3 mars 2022"
    assert write_date(day, "de", "long") == "3. März 2022"
    assert write_date(day, "ja", "full") == "2022年3月3日木曜日"


@given(st.lists(DAYS, min_size=2, max_size=12, unique=True))
def test_texts_are_unambiguous(days: list[date]) -> None:
    texts: dict[str, date] = {}
    for language in LANGUAGES:
        for format in formats_of(language):
            for day in days:
                text = write_date(day, language, format)
                assert text is not None and texts.setdefault(text, day) == day


def test_held_out_dates_and_formats_are_not_in_the_training_data() -> None:
    training = list(islice(training_dates(0), 5000))
    assert not any(is_held_out_date(date.fromisoformat(one.iso)) for one in training)
    assert not any(is_held_out_form(one.language, one.format) for one in training)
    for one in held_out_dates(200):
        assert is_held_out_date(date.fromisoformat(one.iso)) and not is_held_out_form(one.language, one.format)
    for one in held_out_forms(200):
        assert is_held_out_date(date.fromisoformat(one.iso)) and is_held_out_form(one.language, one.format)


def test_a_tenth_of_all_dates_is_held_out() -> None:
    days = [FIRST + timedelta(days=n) for n in range((LAST - FIRST).days + 1)]
    held_out = [day for day in days if is_held_out_date(day)]
    assert 0.09 < len(held_out) / len(days) < 0.11
    assert {day.month for day in held_out} == set(range(1, 13)) and {day.day for day in held_out} == set(range(1, 32))


def test_the_same_seed_gives_the_same_dates() -> None:
    assert list(islice(training_dates(7), 50)) == list(islice(training_dates(7), 50))
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", one.iso) for one in islice(training_dates(7), 50))
