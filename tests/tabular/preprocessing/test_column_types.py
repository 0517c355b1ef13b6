"""Columns are recognised for what they are, and the person has the last word."""

import datetime as dt
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from softlook.base.errors import ConfigError, DataError
from softlook.tabular.preprocessing.column_types import ColumnType
from softlook.tabular.preprocessing.table_encoder import TableEncoder

REVIEWS = [f"I bought number {number} and it is {'good' if number % 2 else 'bad'}" for number in range(40)]
COLUMNS: list[tuple[str, list[Any], ColumnType]] = [
    ("integers", [1, 2, 3], "number"),
    ("floats", [0.5, None], "number"),
    ("truths", [True, None, False], "boolean"),
    ("a few words", ["red", "blue", "red"], "category"),
    ("two words of many", [f"{number % 7} Main" for number in range(60)], "category"),
    ("dates", [dt.date(2024, 1, 1), None], "date"),
    ("moments", [dt.datetime(2024, 1, 1, 3)], "date"),
    ("dates as text", ["2024-01-01", " ", None, "2024-02-01T12:00:00"], "date"),
    ("dates with points", ["13.02.2024", " ", None, "1.2.2024 12:00"], "date"),
    ("dates with slashes, which may be two things", ["1/2/2024", "3/4/2024"], "category"),
    ("addresses of machines", ["10.1.2000.7", "10.1.2001.8"], "category"),
    ("numbers as text", [f"{number}.5" for number in range(30)] + [" "], "number"),
    ("codes that are digits", ["1", "2", "3"] * 10, "category"),
    ("codes with zeros in front", [f"0{number}" for number in range(10, 60)], "category"),
    ("reviews", REVIEWS, "text"),
    ("texts without spaces", [f"这是第{number}条很长的评论文字" for number in range(40)], "text"),
    ("ids", [f"id-{number}" for number in range(40)], "category"),
    ("nothing", [None, None], "number"),
    ("seconds", [dt.timedelta(seconds=3), None], "number"),
    ("times of day", [dt.time(3, 30), None], "number"),
]


@pytest.mark.parametrize(("values", "kind"), [case[1:] for case in COLUMNS], ids=[case[0] for case in COLUMNS])
def test_a_column_is_taken_for_what_it_looks_like(values: list[Any], kind: ColumnType) -> None:
    assert TableEncoder.fit(pa.table({"c": values})).column_types == {"c": kind}


def test_what_the_table_declares_to_be_a_category_is_one() -> None:
    codes = [str(number) for number in range(10_000, 10_040)]
    assert TableEncoder.fit(pd.DataFrame({"zip": codes})).column_types == {"zip": "number"}
    assert TableEncoder.fit(pd.DataFrame({"zip": pd.Categorical(codes)})).column_types == {"zip": "category"}
    assert TableEncoder.fit(pd.DataFrame({"zip": pd.Categorical([1, 2, 1])})).column_types == {"zip": "category"}


def test_a_person_has_the_last_word() -> None:
    frame = pd.DataFrame({"zip": [1010, 1020, 1010], "model": ["S", "L", None], "flag": ["y", "n", "y"]})
    columns = TableEncoder.fit(
        frame, column_types={"zip": "category", 2: "boolean"}, ordinal_categories={"model": ["S", "M", "L"]}
    )
    assert columns.column_types == {"zip": "category", "model": "ordinal", "flag": "boolean"}
    assert columns.encode(frame).numbers[:2, 0].tolist() == [0.0, 2.0]
    assert columns.encode(frame).categories.tolist() == [[2, 3], [3, 2], [2, 3]]


@pytest.mark.parametrize(
    ("values", "odd"),
    [
        (["?", *map(str, range(30))], "'?'"),
        ([f"{1000 * number:,}" for number in range(1, 31)], "'1,000'"),
        ([f"{number} %" for number in range(30)], "'0 %'"),
        ([f"3/{day}/2020" for day in range(1, 31)], "'3/1/2020'"),
    ],
)
def test_what_keeps_digits_from_being_numbers_is_told(values: list[str], odd: str) -> None:
    (told,) = TableEncoder.fit(pd.DataFrame({"c": values})).describe()
    assert told.startswith(f"c: category, neither numbers nor dates because of {odd}, ")


@pytest.mark.parametrize(
    "values",
    [[f"{number:05}" for number in range(30)], [f"A-{number}" for number in range(30)], ["1,000", "2,000"] * 15],
    ids=["codes", "names", "few"],
)
def test_nothing_is_told_of_what_is_no_number_by_its_looks(values: list[str]) -> None:
    assert "numbers" not in TableEncoder.fit(pd.DataFrame({"c": values})).describe()[0]


def test_a_column_may_go_by_its_place_as_numpy_counts_it() -> None:
    columns = TableEncoder.fit(np.arange(6).reshape(3, 2), column_types={np.int64(1): "category"})
    assert columns.column_types == {"x0": "number", "x1": "category"}


def test_an_order_may_be_the_tables_own() -> None:
    sizes = pd.Categorical(["S", "L", "M"], categories=["S", "M", "L"], ordered=True)
    columns = TableEncoder.fit(pd.DataFrame({"model": sizes}), column_types={"model": "ordinal"})
    assert columns.encode([["L"], ["S"], ["XXL"], [None]]).numbers[:, 0].tolist()[:2] == [2.0, 0.0]
    assert columns.describe() == ["size: ordinal, S < M < L"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"column_types": {"agee": "number"}}, "kinds: there is no column 'agee'. Did you mean 'age'?"),
        ({"column_types": {7: "number"}}, "kinds: there is no column 7. They are 'age', 'size'"),
        ({"column_types": {"age": "numeric"}}, "kinds: 'age' is 'numeric'. It may be 'number', 'boolean'"),
        ({"column_types": {"model": "ordinal"}}, r"'size' is ordinal, in what order\? Say ordinal="),
        ({"ordinal_categories": {"model": ["S", "L"]}}, "ordinal: 'size' holds 'M', which its order does not name"),
        ({"ordinal_categories": {"model": ["S", "S", "M"]}}, "names a value twice"),
        (
            {"ordinal_categories": {"model": "SM"}},
            "the order of 'size' is a list of its values, lowest first; 'SM' came",
        ),
    ],
    ids=range(7),
)
def test_what_a_person_says_must_make_sense(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TableEncoder.fit(pd.DataFrame({"age": [1, 2], "model": ["S", "M"]}), **options)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("number", "column 'c' is to hold numbers; 'red' came in row 1"),
        ("date", "column 'c' is to hold dates as 2024-02-29 .*; '3' came in row 0"),
        ("boolean", "column 'c' is to hold two values; it holds 3"),
    ],
)
def test_a_column_must_be_able_to_be_what_it_is_said_to_be(kind: ColumnType, message: str) -> None:
    with pytest.raises(DataError, match=message):
        TableEncoder.fit(pd.DataFrame({"c": ["3", "red", "blue"]}), column_types={"c": kind})
