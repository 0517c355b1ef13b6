"""Dates in many languages, and what is kept for the test."""

import re
from datetime import date, timedelta
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from softlook.recipes.dates import (
    FIRST,
    LANGUAGES,
    LAST,
    is_unseen_date,
    is_unseen_form,
    learn_from,
    unseen_dates,
    unseen_forms,
    ways,
    write,
)

DAYS = st.integers(0, (LAST - FIRST).days).map(lambda days: FIRST + timedelta(days=days))


def test_there_are_many_languages_and_every_one_has_a_way() -> None:
    assert len(LANGUAGES) >= 25
    assert all(ways(language) for language in LANGUAGES)


def test_dates_are_written_as_their_language_does() -> None:
    day = date(2022, 3, 3)
    assert write(day, "fr", "full") == "jeudi 3 mars 2022"
    assert write(day, "de", "long") == "3. März 2022"
    assert write(day, "ja", "full") == "2022年3月3日木曜日"


@given(st.lists(DAYS, min_size=2, max_size=12, unique=True))
def test_no_text_stands_for_two_dates(days: list[date]) -> None:
    said: dict[str, date] = {}
    for language in LANGUAGES:
        for way in ways(language):
            for day in days:
                text = write(day, language, way)
                assert text is not None and said.setdefault(text, day) == day


def test_what_is_tested_was_never_learned_from() -> None:
    learned = list(islice(learn_from(0), 5000))
    assert not any(is_unseen_date(date.fromisoformat(one.iso)) for one in learned)
    assert not any(is_unseen_form(one.language, one.form) for one in learned)
    for one in unseen_dates(200):
        assert is_unseen_date(date.fromisoformat(one.iso)) and not is_unseen_form(one.language, one.form)
    for one in unseen_forms(200):
        assert is_unseen_date(date.fromisoformat(one.iso)) and is_unseen_form(one.language, one.form)


def test_unseen_dates_are_a_tenth_of_all_and_lie_in_every_month() -> None:
    days = [FIRST + timedelta(days=n) for n in range((LAST - FIRST).days + 1)]
    unseen = [day for day in days if is_unseen_date(day)]
    assert 0.09 < len(unseen) / len(days) < 0.11
    assert {day.month for day in unseen} == set(range(1, 13)) and {day.day for day in unseen} == set(range(1, 32))


def test_the_same_seed_gives_the_same_dates() -> None:
    assert list(islice(learn_from(7), 50)) == list(islice(learn_from(7), 50))
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", one.iso) for one in islice(learn_from(7), 50))
