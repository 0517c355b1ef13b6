"""Rows become arrays that say what the rows said, odd tables included, and what was learned can be kept."""

import datetime as dt
import json
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softlook.base.errors import DataError
from softlook.tabular.preprocessing.table_encoder import Feature, TableEncoder
from tests.tabular.tables import bitwise_equal

REVIEWS = [f"a {'very good' if number % 2 else 'rather bad'} thing, number {number}" for number in range(60)]


def mixed(rows: int = 60) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "age": [float(row) if row % 5 else None for row in range(rows)],
            "city": [["Paris", "Rome", None][row % 3] for row in range(rows)],
            "day": [dt.datetime(2024, 1, 1, 12) + dt.timedelta(days=row, hours=row) for row in range(rows)],
            "review": [REVIEWS[row % 60] for row in range(rows)],
            "flag": [row % 2 == 0 for row in range(rows)],
            "model": [["S", "M", "L"][row % 3] for row in range(rows)],
        }
    )


ORDER = {"model": ["S", "M", "L"]}


def test_the_model_sees_numbers_first_and_then_categories() -> None:
    columns = TableEncoder.fit(mixed(), ordinal_categories=ORDER)
    encoded = columns.encode(mixed())
    names = [slot.name for slot in columns.features]
    assert names[:7] == [
        "age",
        "day: time",
        "day: month",
        "day: weekday",
        "day: hour",
        "review: length",
        "review: topic 1",
    ]
    assert columns.features[-3:] == (
        Feature("size", "size", True),
        Feature("city", "city", False),
        Feature("flag", "flag", False),
    )
    assert columns.cardinalities == (4, 4)
    assert encoded.numbers.shape == (60, sum(slot.numeric for slot in columns.features))
    assert encoded.categories.shape == (60, 2)
    assert (encoded.numbers.dtype, encoded.categories.dtype) == (np.float32, np.int64)


def test_what_was_learned_is_said() -> None:
    assert TableEncoder.fit(mixed(), ordinal_categories=ORDER).describe() == [
        "age: number, 20 % missing",
        "city: category, 2 values, 33 % missing",
        "day: date, 2024-01-01 to 2024-03-02",
        "review: text, 7 words in 6 topics",
        "flag: boolean",
        "size: ordinal, S < M < L",
    ]


def test_what_was_kept_encodes_the_same_to_the_bit() -> None:
    columns = TableEncoder.fit(mixed(), ordinal_categories=ORDER)
    facts, arrays = columns.state()
    again = TableEncoder.from_state(json.loads(json.dumps(facts, allow_nan=False)), arrays)
    assert again.describe() == columns.describe()
    assert again.features == columns.features
    assert bitwise_equal(again.encode(mixed()), columns.encode(mixed()))


def test_rows_are_encoded_one_by_one() -> None:
    frame = mixed()
    columns = TableEncoder.fit(frame, ordinal_categories=ORDER)
    alone = [columns.encode(frame.iloc[row : row + 1]) for row in range(60)]
    whole = columns.encode(frame)
    assert np.concatenate([row.numbers for row in alone]).tobytes() == whole.numbers.tobytes()
    assert np.concatenate([row.categories for row in alone]).tobytes() == whole.categories.tobytes()


def test_the_order_of_rows_does_not_matter_to_what_is_learned() -> None:
    frame = mixed()
    shuffled = frame.sample(frac=1.0, random_state=0)
    assert bitwise_equal(
        TableEncoder.fit(shuffled, ordinal_categories=ORDER).encode(frame),
        TableEncoder.fit(frame, ordinal_categories=ORDER).encode(frame),
    )


def test_columns_go_by_name_where_there_are_names_and_else_by_place() -> None:
    columns = TableEncoder.fit(pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 5.0]}))
    assert columns.encode(pl.DataFrame({"b": [7.0], "more": [0], "a": [8.0]})).numbers.tolist() == [[8.0, 7.0]]
    assert columns.encode(np.array([[8.0, 7.0]])).numbers.tolist() == [[8.0, 7.0]]
    with pytest.raises(DataError, match="columns are missing: 'b'"):
        columns.encode(pl.DataFrame({"a": [8.0]}))
    with pytest.raises(DataError, match="X has 3 features, but 2 features are expected"):
        columns.encode(np.zeros((1, 3)))


def test_rare_and_unseen_values_share_a_code() -> None:
    words = ["common"] * 3000 + ["usual"] * 3000 + ["odd"] * 2
    columns = TableEncoder.fit(pd.DataFrame({"c": words}))
    found = columns.encode(pd.DataFrame({"c": ["common", "usual", "odd", "new", None]}))
    assert found.categories[:, 0].tolist() == [2, 3, 1, 1, 0]
    assert columns.describe() == ["c: category, 2 values, 1 rare taken as one"]


def test_a_column_of_many_values_keeps_the_most_frequent_thousand() -> None:
    words = [f"w{number}" for number in range(1500) for _ in range(5 + number % 3)]
    columns = TableEncoder.fit(pd.DataFrame({"c": words}))
    assert columns.cardinalities == (1002,)
    codes = columns.encode(pd.DataFrame({"c": [f"w{number}" for number in range(1500)]})).categories[:, 0]
    assert (codes[2::3] > 1).all() and (codes == 1).sum() == 500


def test_an_id_carries_nothing_and_that_is_said() -> None:
    columns = TableEncoder.fit(pd.DataFrame({"id": [f"c{number}" for number in range(30)]}))
    assert columns.cardinalities == (2,)
    assert columns.describe() == ["id: category, every value is another one, as in an id: it carries nothing"]


def test_numbers_that_float32_would_blur_are_told_from_their_middle() -> None:
    ids = np.arange(10**9, 10**9 + 50, dtype=np.float64)[:, None]
    found = TableEncoder.fit(ids).encode(ids).numbers[:, 0]
    assert np.array_equal(np.diff(found), np.ones(49))


@pytest.mark.parametrize("scale", [1e300, 1e-300, 1e38])
def test_numbers_that_float32_cannot_hold_are_told_in_another_unit(scale: float) -> None:
    numbers = np.array([[1.0], [2.0], [-3.0]]) * scale
    found = TableEncoder.fit(numbers).encode(numbers).numbers
    assert np.allclose(found / found[0], [[1], [2], [-3]])
    assert np.isfinite(TableEncoder.fit(np.array([[1.0], [2.0]])).encode(numbers).numbers).all()


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
@settings(max_examples=50)
def test_numbers_are_always_finite_and_in_order(values: list[float]) -> None:
    numbers = np.array(values)[:, None]
    found = TableEncoder.fit(numbers).encode(numbers).numbers[:, 0]
    assert np.isfinite(found).all()
    assert (np.diff(found[np.argsort(numbers[:, 0], kind="stable")]) >= 0).all()


@pytest.mark.parametrize("make", [np.array, pd.DataFrame, lambda rows: pl.DataFrame(rows, orient="row")])
def test_infinity_is_refused_by_place(make: Any) -> None:
    rows = [[1.0, 2.0], [3.0, float("-inf")]]
    with pytest.raises(DataError, match=r"Input X contains infinity .*column '\w+1' holds -inf in row 1"):
        TableEncoder.fit(make(rows))
    with pytest.raises(DataError, match="Input X contains infinity"):
        TableEncoder.fit(make([[1.0, 2.0], [3.0, 4.0]])).encode(make(rows))


def test_a_date_is_days_since_the_first_and_what_the_calendar_shows() -> None:
    days = [dt.datetime(2024, 2, 29, 6), dt.datetime(2023, 12, 31), None]
    columns = TableEncoder.fit(pl.DataFrame({"d": days}))
    assert [slot.name for slot in columns.features] == ["d: time", "d: year", "d: month", "d: weekday", "d: hour"]
    found = columns.encode(pl.DataFrame({"d": days})).numbers
    assert found[:2].tolist() == [[60.25, 2024, 2, 3, 6], [0, 2023, 12, 6, 0]]
    assert np.isnan(found[2]).all()


def test_an_hour_is_what_the_clock_there_shows() -> None:
    summer_begins = pd.to_datetime(["2024-03-31 00:30", "2024-03-31 01:30"], utc=True).tz_convert("Europe/Berlin")
    frame = pd.DataFrame({"t": summer_begins})
    columns = TableEncoder.fit(frame)
    assert columns.encode(frame).numbers[:, -1].tolist() == [1.5, 3.5]
    with pytest.raises(DataError, match="learned with Europe/Berlin; now its times have no time zone"):
        columns.encode(pd.DataFrame({"t": pd.to_datetime(["2024-03-31"])}))


def test_days_are_told_as_the_calendar_there_shows_them() -> None:
    frame = pd.DataFrame({"t": pd.to_datetime(["2024-01-01", "2024-07-01"]).tz_localize("Europe/Berlin")})
    assert TableEncoder.fit(frame).describe() == ["t: date, 2024-01-01 to 2024-07-01"]


def test_texts_about_the_same_lie_together() -> None:
    frame = pd.DataFrame({"review": REVIEWS})
    topics = TableEncoder.fit(frame).encode(frame).numbers[:, 1:]
    likeness = topics @ topics.T
    assert likeness[0, 2] > likeness[0, 1] + 0.3
    found = TableEncoder.fit(frame).encode(pd.DataFrame({"review": [None, "", "unheard"]})).numbers
    assert np.isnan(found[0]).all() and found[1:, 1:].tolist() == np.zeros((2, topics.shape[1])).tolist()


NAN = float("nan")
ODD: dict[str, tuple[Any, list[str]]] = {
    "one row": ([[1, "a"]], ["x0: number, always 1", "x1: category, always 'a'"]),
    "all missing": ([[None], [None]], ["x0: number, all missing: it carries nothing"]),
    "all NaN": (np.full((2, 1), NAN), ["x0: number, all missing: it carries nothing"]),
    "all null in arrow": (pa.table({"a": pa.nulls(2)}), ["a: number, all missing: it carries nothing"]),
    "all null as strings": (
        pl.DataFrame({"a": pl.Series([None], dtype=pl.String)}),
        ["a: number, all missing: it carries nothing"],
    ),
    "constant": (np.ones((3, 1)), ["x0: number, always 1"]),
    "constant words": ([["a"], ["a"]], ["x0: category, always 'a'"]),
    "constant truth": (np.ones((2, 1), bool), ["x0: boolean"]),
    "empty words": ([[""], [None]], ["x0: category, always '', 50 % missing"]),
    "one date": (pd.DataFrame({"d": [pd.Timestamp("2024-01-01")]}), ["d: date, 2024-01-01 to 2024-01-01"]),
    "bytes as strings": (np.array([["a"], ["b"]], "S"), ["x0: category, 2 values"]),
    "dates of numpy": (
        np.array([["2024-01-01"], ["NaT"]], "M8[D]"),
        ["x0: date, 2024-01-01 to 2024-01-01, 50 % missing"],
    ),
    "very large integers": ([[2**70], [1]], ["x0: number"]),
    "unsigned": (np.array([[2**64 - 1], [0]], np.uint64), ["x0: number"]),
    "half floats": (np.array([[0.5], [NAN]], np.float16), ["x0: number, always 0.5, 50 % missing"]),
    "a text without words": (
        pd.DataFrame({"t": [f"{'! ' * number} ?" for number in range(30)]}),
        ["t: text, 0 words in 0 topics"],
    ),
    "line ends and quotes": ([['a\n"b"'], ["c"]], ["x0: category, 2 values"]),
}


@pytest.mark.parametrize("odd", list(ODD))
def test_an_odd_table_is_taken_as_it_is(odd: str) -> None:
    table, told = ODD[odd]
    columns = TableEncoder.fit(table)
    assert columns.describe() == told
    encoded = columns.encode(table)
    assert not np.isinf(encoded.numbers).any()
    assert all((codes < size).all() for codes, size in zip(encoded.categories.T, columns.cardinalities, strict=True))


def test_a_column_that_was_all_missing_takes_whatever_comes() -> None:
    columns = TableEncoder.fit([[None, 1.0], [None, 2.0]])
    assert np.isnan(columns.encode([["word", 1.0]]).numbers[0, 0])
    assert columns.encode([[3, 1.0]]).numbers.tolist() == [[3.0, 1.0]]


@pytest.mark.parametrize(
    ("values", "later", "message"),
    [
        ([1, 2], ["word"], "column 'c' is to hold numbers; 'word' came in row 0"),
        ([1, 2], [dt.date(2024, 1, 1)], "column 'c' is to hold numbers; dates came"),
        ([dt.date(2024, 1, 1)], [3], "column 'c' is to hold dates; numbers came"),
        ([dt.date(2024, 1, 1)], ["2024-01-02", "soon"], "'soon' came in row 1"),
    ],
    ids=range(4),
)
def test_a_column_that_turns_into_something_else_is_refused(values: list[Any], later: list[Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        TableEncoder.fit(pd.DataFrame({"c": values})).encode(pd.DataFrame({"c": later}))


ZONED, BARE = dt.datetime(2024, 1, 1, 5, tzinfo=dt.UTC), dt.datetime(2024, 1, 1, 5)


@pytest.mark.parametrize(
    "cells",
    [
        ["2024-01-01T05:00:00Z", "2024-01-01T05:00:00"],
        ["2024-01-01T05:00:00Z", "", "2024-01-01"],
        [ZONED, BARE],
        [ZONED, None, BARE.date()],
        [pd.Timestamp(ZONED), pd.NaT, pd.Timestamp(BARE)],
    ],
    ids=["written as text", "written as text, and days", "datetimes", "datetimes and days", "of pandas"],
)
@pytest.mark.parametrize("last", [1, -1], ids=["with first", "without first"])
def test_times_with_and_without_a_time_zone_are_refused_whichever_comes_first(cells: list[Any], last: int) -> None:
    zoned, bare = (0, len(cells) - 1)[::last]
    message = f"with a time zone or times without; row {zoned} has one, row {bare} none"
    with pytest.raises(DataError, match=f"column 'x0' is to hold times {message}"):
        TableEncoder.fit([[cell] for cell in cells[::last]], column_types={"x0": "date"})


def test_times_of_several_time_zones_are_moments() -> None:
    there = dt.timezone(dt.timedelta(hours=2))
    columns = TableEncoder.fit([[ZONED], [np.datetime64("NaT")], [ZONED.astimezone(there)]])
    assert columns.column_types == {"x0": "date"} and columns.encode([[ZONED]]).numbers[0, 0] == 0


def test_truths_may_be_written_as_people_and_programs_do() -> None:
    columns = TableEncoder.fit(pd.DataFrame({"c": [True, False]}))
    codes = [
        columns.encode([[value]]).categories[0, 0] for value in (True, 1, 1.0, "True", "TRUE", False, 0, None, "maybe")
    ]
    assert codes == [3, 3, 3, 3, 3, 2, 2, 0, 1]


def test_dates_with_points_are_those_that_iso_writes() -> None:
    """Every day of a leap year, with noughts and without."""
    days = [dt.date(2024, 1, 1) + dt.timedelta(days=day) for day in range(366)]
    iso = TableEncoder.fit(pa.table({"d": [day.isoformat() for day in days]}))
    targets = iso.encode(pa.table({"d": [day.isoformat() for day in days]})).numbers
    for form in ("{0.day}.{0.month}.{0.year}", "{0:%d.%m.%Y}"):
        table = pa.table({"d": [form.format(day) for day in days]})
        assert (TableEncoder.fit(table).encode(table).numbers == targets).all()
        assert (iso.encode(table).numbers == targets).all()


def test_dates_with_points_leave_others_beside_them_as_they_are() -> None:
    words = ["2024-02-29T12:00:00-0530", "29.02.2024T12:00:00-0530"]
    assert TableEncoder.fit(pa.table({"d": words})).column_types == {"d": "date"}
    first, second = (
        TableEncoder.fit(pa.table({"d": [*words, "2024-03-01T00:00:00-0100"]})).encode(pa.table({"d": words})).numbers
    )
    assert (first == second).all()
