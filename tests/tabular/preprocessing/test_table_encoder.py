"""Tables are encoded as arrays, edge cases included, and the state of the encoder can be restored."""

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


def mixed_table(rows: int = 60) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "age": [float(row) if row % 5 else None for row in range(rows)],
            "city": [["Paris", "Rome", None][row % 3] for row in range(rows)],
            "day": [dt.datetime(2024, 1, 1, 12) + dt.timedelta(days=row, hours=row) for row in range(rows)],
            "review": [REVIEWS[row % 60] for row in range(rows)],
            "flag": [row % 2 == 0 for row in range(rows)],
            "size": [["S", "M", "L"][row % 3] for row in range(rows)],
        }
    )


ORDER = {"size": ["S", "M", "L"]}


def test_features_are_numbers_first_and_then_categories() -> None:
    encoder = TableEncoder.fit(mixed_table(), ordinal_categories=ORDER)
    encoded = encoder.encode(mixed_table())
    names = [feature.name for feature in encoder.features]
    assert names[:7] == [
        "age",
        "day: time",
        "day: month",
        "day: weekday",
        "day: hour",
        "review: length",
        "review: topic 1",
    ]
    assert encoder.features[-3:] == (
        Feature("size", "size", True),
        Feature("city", "city", False),
        Feature("flag", "flag", False),
    )
    assert encoder.cardinalities == (4, 4)
    assert encoded.numbers.shape == (60, sum(feature.is_numeric for feature in encoder.features))
    assert encoded.categories.shape == (60, 2)
    assert (encoded.numbers.dtype, encoded.categories.dtype) == (np.float32, np.int64)


def test_each_column_is_described() -> None:
    assert TableEncoder.fit(mixed_table(), ordinal_categories=ORDER).describe() == [
        "age: number, 20 % missing",
        "city: category, 2 values, 33 % missing",
        "day: date, 2024-01-01 to 2024-03-02",
        "review: text, 7 words in 6 topics",
        "flag: boolean",
        "size: ordinal, S < M < L",
    ]


def test_a_restored_encoder_gives_bitwise_equal_results() -> None:
    encoder = TableEncoder.fit(mixed_table(), ordinal_categories=ORDER)
    values, arrays = encoder.state()
    restored = TableEncoder.from_state(json.loads(json.dumps(values, allow_nan=False)), arrays)
    assert restored.describe() == encoder.describe()
    assert restored.features == encoder.features
    assert bitwise_equal(restored.encode(mixed_table()), encoder.encode(mixed_table()))


def test_rows_are_encoded_independently() -> None:
    frame = mixed_table()
    encoder = TableEncoder.fit(frame, ordinal_categories=ORDER)
    row_by_row = [encoder.encode(frame.iloc[row : row + 1]) for row in range(60)]
    whole = encoder.encode(frame)
    assert np.concatenate([row.numbers for row in row_by_row]).tobytes() == whole.numbers.tobytes()
    assert np.concatenate([row.categories for row in row_by_row]).tobytes() == whole.categories.tobytes()


def test_the_fit_does_not_depend_on_the_order_of_rows() -> None:
    frame = mixed_table()
    shuffled = frame.sample(frac=1.0, random_state=0)
    assert bitwise_equal(
        TableEncoder.fit(shuffled, ordinal_categories=ORDER).encode(frame),
        TableEncoder.fit(frame, ordinal_categories=ORDER).encode(frame),
    )


def test_columns_match_by_name_if_there_are_names_and_by_position_otherwise() -> None:
    encoder = TableEncoder.fit(pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 5.0]}))
    assert encoder.encode(pl.DataFrame({"b": [7.0], "extra": [0], "a": [8.0]})).numbers.tolist() == [[8.0, 7.0]]
    assert encoder.encode(np.array([[8.0, 7.0]])).numbers.tolist() == [[8.0, 7.0]]
    with pytest.raises(DataError, match="columns are missing: 'b'"):
        encoder.encode(pl.DataFrame({"a": [8.0]}))
    with pytest.raises(DataError, match="X has 3 features, but 2 features are expected"):
        encoder.encode(np.zeros((1, 3)))


def test_rare_and_unseen_values_share_a_code() -> None:
    values = ["common"] * 3000 + ["frequent"] * 3000 + ["rare"] * 2
    encoder = TableEncoder.fit(pd.DataFrame({"c": values}))
    encoded = encoder.encode(pd.DataFrame({"c": ["common", "frequent", "rare", "new", None]}))
    assert encoded.categories[:, 0].tolist() == [2, 3, 1, 1, 0]
    assert encoder.describe() == ["c: category, 2 values, 1 rare taken as one"]


def test_a_column_of_many_values_keeps_the_thousand_most_frequent() -> None:
    values = [f"w{number}" for number in range(1500) for _ in range(5 + number % 3)]
    encoder = TableEncoder.fit(pd.DataFrame({"c": values}))
    assert encoder.cardinalities == (1002,)
    codes = encoder.encode(pd.DataFrame({"c": [f"w{number}" for number in range(1500)]})).categories[:, 0]
    assert (codes[2::3] > 1).all() and (codes == 1).sum() == 500


def test_an_id_column_is_described_as_carrying_no_information() -> None:
    encoder = TableEncoder.fit(pd.DataFrame({"id": [f"c{number}" for number in range(30)]}))
    assert encoder.cardinalities == (2,)
    assert encoder.describe() == ["id: category, every value is unique, as in an id: it carries no information"]


def test_numbers_that_float32_cannot_resolve_are_centered() -> None:
    ids = np.arange(10**9, 10**9 + 50, dtype=np.float64)[:, None]
    encoded = TableEncoder.fit(ids).encode(ids).numbers[:, 0]
    assert np.array_equal(np.diff(encoded), np.ones(49))


@pytest.mark.parametrize("scale", [1e300, 1e-300, 1e38])
def test_numbers_that_float32_cannot_represent_are_rescaled(scale: float) -> None:
    numbers = np.array([[1.0], [2.0], [-3.0]]) * scale
    encoded = TableEncoder.fit(numbers).encode(numbers).numbers
    assert np.allclose(encoded / encoded[0], [[1], [2], [-3]])
    assert np.isfinite(TableEncoder.fit(np.array([[1.0], [2.0]])).encode(numbers).numbers).all()


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
@settings(max_examples=50)
def test_encoded_numbers_are_finite_and_monotonic(values: list[float]) -> None:
    numbers = np.array(values)[:, None]
    encoded = TableEncoder.fit(numbers).encode(numbers).numbers[:, 0]
    assert np.isfinite(encoded).all()
    assert (np.diff(encoded[np.argsort(numbers[:, 0], kind="stable")]) >= 0).all()


@pytest.mark.parametrize("make", [np.array, pd.DataFrame, lambda rows: pl.DataFrame(rows, orient="row")])
def test_infinity_is_rejected_with_its_row_and_column(make: Any) -> None:
    rows = [[1.0, 2.0], [3.0, float("-inf")]]
    with pytest.raises(DataError, match=r"Input X contains infinity .*column '\w+1' holds -inf in row 1"):
        TableEncoder.fit(make(rows))
    with pytest.raises(DataError, match="Input X contains infinity"):
        TableEncoder.fit(make([[1.0, 2.0], [3.0, 4.0]])).encode(make(rows))


def test_a_date_is_encoded_as_days_since_the_first_and_calendar_features() -> None:
    days = [dt.datetime(2024, 2, 29, 6), dt.datetime(2023, 12, 31), None]
    encoder = TableEncoder.fit(pl.DataFrame({"d": days}))
    assert [feature.name for feature in encoder.features] == ["d: time", "d: year", "d: month", "d: weekday", "d: hour"]
    encoded = encoder.encode(pl.DataFrame({"d": days})).numbers
    assert encoded[:2].tolist() == [[60.25, 2024, 2, 3, 6], [0, 2023, 12, 6, 0]]
    assert np.isnan(encoded[2]).all()


def test_the_hour_is_local_time() -> None:
    times = pd.to_datetime(["2024-03-31 00:30", "2024-03-31 01:30"], utc=True)  # daylight saving starts between them
    frame = pd.DataFrame({"t": times.tz_convert("Europe/Berlin")})
    encoder = TableEncoder.fit(frame)
    assert encoder.encode(frame).numbers[:, -1].tolist() == [1.5, 3.5]
    with pytest.raises(DataError, match="expected timestamps with Europe/Berlin, got no time zone"):
        encoder.encode(pd.DataFrame({"t": pd.to_datetime(["2024-03-31"])}))


def test_descriptions_give_local_dates() -> None:
    frame = pd.DataFrame({"t": pd.to_datetime(["2024-01-01", "2024-07-01"]).tz_localize("Europe/Berlin")})
    assert TableEncoder.fit(frame).describe() == ["t: date, 2024-01-01 to 2024-07-01"]


def test_similar_texts_have_similar_topics() -> None:
    frame = pd.DataFrame({"review": REVIEWS})
    topics = TableEncoder.fit(frame).encode(frame).numbers[:, 1:]
    similarity = topics @ topics.T
    assert similarity[0, 2] > similarity[0, 1] + 0.3
    encoded = TableEncoder.fit(frame).encode(pd.DataFrame({"review": [None, "", "unseen"]})).numbers
    assert np.isnan(encoded[0]).all() and encoded[1:, 1:].tolist() == np.zeros((2, topics.shape[1])).tolist()


NAN = float("nan")
EDGE_CASES: dict[str, tuple[Any, list[str]]] = {
    "one row": ([[1, "a"]], ["x0: number, always 1", "x1: category, always 'a'"]),
    "all missing": ([[None], [None]], ["x0: number, all missing: it carries no information"]),
    "all NaN": (np.full((2, 1), NAN), ["x0: number, all missing: it carries no information"]),
    "all null in arrow": (pa.table({"a": pa.nulls(2)}), ["a: number, all missing: it carries no information"]),
    "all null as strings": (
        pl.DataFrame({"a": pl.Series([None], dtype=pl.String)}),
        ["a: number, all missing: it carries no information"],
    ),
    "constant": (np.ones((3, 1)), ["x0: number, always 1"]),
    "constant string": ([["a"], ["a"]], ["x0: category, always 'a'"]),
    "constant boolean": (np.ones((2, 1), bool), ["x0: boolean"]),
    "empty string": ([[""], [None]], ["x0: category, always '', 50 % missing"]),
    "one date": (pd.DataFrame({"d": [pd.Timestamp("2024-01-01")]}), ["d: date, 2024-01-01 to 2024-01-01"]),
    "byte strings": (np.array([["a"], ["b"]], "S"), ["x0: category, 2 values"]),
    "numpy dates": (
        np.array([["2024-01-01"], ["NaT"]], "M8[D]"),
        ["x0: date, 2024-01-01 to 2024-01-01, 50 % missing"],
    ),
    "very large integers": ([[2**70], [1]], ["x0: number"]),
    "unsigned integers": (np.array([[2**64 - 1], [0]], np.uint64), ["x0: number"]),
    "half floats": (np.array([[0.5], [NAN]], np.float16), ["x0: number, always 0.5, 50 % missing"]),
    "text without words": (
        pd.DataFrame({"t": [f"{'! ' * number} ?" for number in range(30)]}),
        ["t: text, 0 words in 0 topics"],
    ),
    "line ends and quotes": ([['a\n"b"'], ["c"]], ["x0: category, 2 values"]),
}


@pytest.mark.parametrize("case", list(EDGE_CASES))
def test_edge_cases_are_encoded(case: str) -> None:
    table, descriptions = EDGE_CASES[case]
    encoder = TableEncoder.fit(table)
    assert encoder.describe() == descriptions
    encoded = encoder.encode(table)
    assert not np.isinf(encoded.numbers).any()
    assert all((codes < size).all() for codes, size in zip(encoded.categories.T, encoder.cardinalities, strict=True))


def test_a_column_that_was_all_missing_accepts_any_value() -> None:
    encoder = TableEncoder.fit([[None, 1.0], [None, 2.0]])
    assert np.isnan(encoder.encode([["text", 1.0]]).numbers[0, 0])
    assert encoder.encode([[3, 1.0]]).numbers.tolist() == [[3.0, 1.0]]


@pytest.mark.parametrize(
    ("values", "later", "message"),
    [
        ([1, 2], ["text"], "column 'c': expected numbers, got 'text' in row 0"),
        ([1, 2], [dt.date(2024, 1, 1)], "column 'c': expected numbers, got dates"),
        ([dt.date(2024, 1, 1)], [3], "column 'c': expected dates, got numbers"),
        ([dt.date(2024, 1, 1)], ["2024-01-02", "soon"], "got 'soon' in row 1"),
    ],
    ids=range(4),
)
def test_a_column_whose_type_changed_is_rejected(values: list[Any], later: list[Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        TableEncoder.fit(pd.DataFrame({"c": values})).encode(pd.DataFrame({"c": later}))


ZONED, NAIVE = dt.datetime(2024, 1, 1, 5, tzinfo=dt.UTC), dt.datetime(2024, 1, 1, 5)


@pytest.mark.parametrize(
    "cells",
    [
        ["2024-01-01T05:00:00Z", "2024-01-01T05:00:00"],
        ["2024-01-01T05:00:00Z", "", "2024-01-01"],
        [ZONED, NAIVE],
        [ZONED, None, NAIVE.date()],
        [pd.Timestamp(ZONED), pd.NaT, pd.Timestamp(NAIVE)],
    ],
    ids=["strings", "strings and days", "datetimes", "datetimes and days", "pandas timestamps"],
)
@pytest.mark.parametrize("step", [1, -1], ids=["with time zone first", "without time zone first"])
def test_mixing_timestamps_with_and_without_a_time_zone_is_rejected(cells: list[Any], step: int) -> None:
    zoned, naive = (0, len(cells) - 1)[::step]
    message = f"mixes timestamps with and without a time zone: row {zoned} has one, row {naive} has none"
    with pytest.raises(DataError, match=f"column 'x0' {message}"):
        TableEncoder.fit([[cell] for cell in cells[::step]], column_types={"x0": "date"})


def test_timestamps_of_different_time_zones_are_compared_as_instants() -> None:
    zone = dt.timezone(dt.timedelta(hours=2))
    encoder = TableEncoder.fit([[ZONED], [np.datetime64("NaT")], [ZONED.astimezone(zone)]])
    assert encoder.column_types == {"x0": "date"} and encoder.encode([[ZONED]]).numbers[0, 0] == 0


def test_booleans_are_recognised_in_several_spellings() -> None:
    encoder = TableEncoder.fit(pd.DataFrame({"c": [True, False]}))
    codes = [
        encoder.encode([[value]]).categories[0, 0] for value in (True, 1, 1.0, "True", "TRUE", False, 0, None, "maybe")
    ]
    assert codes == [3, 3, 3, 3, 3, 2, 2, 0, 1]


def test_dates_with_dots_equal_iso_dates() -> None:
    """Every day of a leap year, with and without leading zeros."""
    days = [dt.date(2024, 1, 1) + dt.timedelta(days=day) for day in range(366)]
    iso = TableEncoder.fit(pa.table({"d": [day.isoformat() for day in days]}))
    expected = iso.encode(pa.table({"d": [day.isoformat() for day in days]})).numbers
    for date_format in ("{0.day}.{0.month}.{0.year}", "{0:%d.%m.%Y}"):
        table = pa.table({"d": [date_format.format(day) for day in days]})
        assert (TableEncoder.fit(table).encode(table).numbers == expected).all()
        assert (iso.encode(table).numbers == expected).all()


def test_iso_dates_and_dates_with_dots_may_be_mixed() -> None:
    dates = ["2024-02-29T12:00:00-0530", "29.02.2024T12:00:00-0530"]
    assert TableEncoder.fit(pa.table({"d": dates})).column_types == {"d": "date"}
    first, second = (
        TableEncoder.fit(pa.table({"d": [*dates, "2024-03-01T00:00:00-0100"]})).encode(pa.table({"d": dates})).numbers
    )
    assert (first == second).all()
