"""Dates as people type them."""

import random
from collections.abc import Iterator
from datetime import date, timedelta
from itertools import islice

import pytest

from softlook.recipes.demo.dates import FIRST, is_held_out_date, read_dates, score_dates, shipped_model, typed_dates
from softlook.recipes.demo.typed_dates import type_date

TYPED_FIRST = {
    "Jan 5th, 2021": "2021-01-05",
    "Jan 5, 2021": "2021-01-05",
    "January 5, 2021": "2021-01-05",
    "january 5 2021": "2021-01-05",
    "5 January 2021": "2021-01-05",
    "5th of January 2021": "2021-01-05",
    "the 5th of January, 2021": "2021-01-05",
    "5 Jan 2021": "2021-01-05",
    "5th January 2021": "2021-01-05",
    "2021-01-05": "2021-01-05",
    "2021/01/05": "2021-01-05",
    "05.01.2021": "2021-01-05",
    "5.1.2021": "2021-01-05",
    "January 5": "--01-05",
    "Dec 25": "--12-25",
    "25 December": "--12-25",
    "March 2020": "2020-03",
    "12/25/2020": "2020-12-25",
    "25/12/2020": "2020-12-25",
    "25.12.2020": "2020-12-25",
    "12/31/99": "1999-12-31",
    "July 4th, 1976": "1976-07-04",
    "july 4, 1976": "1976-07-04",
    "JULY 4 1976": "1976-07-04",
    "4 July 1976": "1976-07-04",
    "Sept 11, 2001": "2001-09-11",
    "11 Sep 2001": "2001-09-11",
    "Feb 29, 2024": "2024-02-29",
    "29 Feb 2024": "2024-02-29",
    "1st May 2000": "2000-05-01",
    "2nd of June 1999": "1999-06-02",
    "3rd March 2022": "2022-03-03",
    "Monday, March 3rd, 2025": "2025-03-03",
    "Thu 3 Mar 2022": "2022-03-03",
    "Fri, Oct 31 2014": "2014-10-31",
    "22-Nov-1963": "1963-11-22",
    "22 nov 63": "1963-11-22",
    "August 15 1957": "1957-08-15",
    "Oct. 3, 1990": "1990-10-03",
    "9 November 1989": "1989-11-09",
    "20.07.1969": "1969-07-20",
    "jeudi 3 mars 2022": "2022-03-03",
    "3. März 2022": "2022-03-03",
}


@pytest.fixture(scope="module")
def readings() -> dict[str, str]:
    return dict(zip(TYPED_FIRST, read_dates(shipped_model(), list(TYPED_FIRST)), strict=True))


def test_the_shipped_model_reads_the_dates_people_type_first(readings: dict[str, str]) -> None:
    assert len(TYPED_FIRST) >= 40
    assert readings == TYPED_FIRST


def test_the_shipped_model_reads_held_out_typed_dates() -> None:
    scores = score_dates(shipped_model(), list(islice(typed_dates(11, held_out=True), 500)))
    assert scores.accuracy >= 0.98, scores.errors


def days() -> Iterator[date]:
    rng = random.Random(0)
    while True:
        yield FIRST + timedelta(days=rng.randrange(36_000))


def test_a_typed_date_has_one_reading() -> None:
    rng, readings = random.Random(1), dict[str, str]()
    for day in islice(days(), 20_000):
        text, iso = type_date(day, rng)
        assert readings.setdefault(text, iso) == iso
        assert iso in (day.isoformat(), f"{day:%Y-%m}", f"--{day:%m-%d}")


def test_held_out_dates_are_not_typed_in_training() -> None:
    whole = [one.iso for one in islice(typed_dates(0), 2000) if len(one.iso) == 10]
    assert len(whole) > 1000 and not any(is_held_out_date(date.fromisoformat(iso)) for iso in whole)
