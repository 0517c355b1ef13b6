"""Column types are inferred from the values, and the user can override them."""

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
    ("booleans", [True, None, False], "boolean"),
    ("few strings", ["red", "blue", "red"], "category"),
    ("repeated addresses", [f"{number % 7} Main" for number in range(60)], "category"),
    ("dates", [dt.date(2024, 1, 1), None], "date"),
    ("datetimes", [dt.datetime(2024, 1, 1, 3)], "date"),
    ("dates as strings", ["2024-01-01", " ", None, "2024-02-01T12:00:00"], "date"),
    ("dates with dots", ["13.02.2024", " ", None, "1.2.2024 12:00"], "date"),
    ("ambiguous dates with slashes", ["1/2/2024", "3/4/2024"], "category"),
    ("IP-like addresses", ["10.1.2000.7", "10.1.2001.8"], "category"),
    ("numbers as strings", [f"{number}.5" for number in range(30)] + [" "], "number"),
    ("codes of digits", ["1", "2", "3"] * 10, "category"),
    ("codes with leading zeros", [f"0{number}" for number in range(10, 60)], "category"),
    ("reviews", REVIEWS, "text"),
    ("texts without spaces", [f"这是第{number}条很长的评论文字" for number in range(40)], "text"),
    ("ids", [f"id-{number}" for number in range(40)], "category"),
    ("empty", [None, None], "number"),
    ("durations", [dt.timedelta(seconds=3), None], "number"),
    ("times of day", [dt.time(3, 30), None], "number"),
]


@pytest.mark.parametrize(("values", "column_type"), [case[1:] for case in COLUMNS], ids=[case[0] for case in COLUMNS])
def test_the_column_type_is_inferred(values: list[Any], column_type: ColumnType) -> None:
    assert TableEncoder.fit(pa.table({"c": values})).column_types == {"c": column_type}


def test_a_declared_category_is_a_category() -> None:
    codes = [str(number) for number in range(10_000, 10_040)]
    assert TableEncoder.fit(pd.DataFrame({"zip": codes})).column_types == {"zip": "number"}
    assert TableEncoder.fit(pd.DataFrame({"zip": pd.Categorical(codes)})).column_types == {"zip": "category"}
    assert TableEncoder.fit(pd.DataFrame({"zip": pd.Categorical([1, 2, 1])})).column_types == {"zip": "category"}


def test_given_column_types_override_inferred_ones() -> None:
    frame = pd.DataFrame({"zip": [1010, 1020, 1010], "size": ["S", "L", None], "flag": ["y", "n", "y"]})
    encoder = TableEncoder.fit(
        frame, column_types={"zip": "category", 2: "boolean"}, ordinal_categories={"size": ["S", "M", "L"]}
    )
    assert encoder.column_types == {"zip": "category", "size": "ordinal", "flag": "boolean"}
    assert encoder.encode(frame).numbers[:2, 0].tolist() == [0.0, 2.0]
    assert encoder.encode(frame).categories.tolist() == [[2, 3], [3, 2], [2, 3]]


@pytest.mark.parametrize(
    ("values", "example"),
    [
        (["?", *map(str, range(30))], "'?'"),
        ([f"{1000 * number:,}" for number in range(1, 31)], "'1,000'"),
        ([f"{number} %" for number in range(30)], "'0 %'"),
        ([f"3/{day}/2020" for day in range(1, 31)], "'3/1/2020'"),
    ],
)
def test_the_description_names_a_value_that_prevents_a_numeric_type(values: list[str], example: str) -> None:
    (description,) = TableEncoder.fit(pd.DataFrame({"c": values})).describe()
    assert description.startswith(f"c: category, neither numbers nor dates because of {example}, ")


@pytest.mark.parametrize(
    "values",
    [[f"{number:05}" for number in range(30)], [f"A-{number}" for number in range(30)], ["1,000", "2,000"] * 15],
    ids=["codes", "names", "few"],
)
def test_the_description_of_clear_categories_mentions_no_numbers(values: list[str]) -> None:
    assert "numbers" not in TableEncoder.fit(pd.DataFrame({"c": values})).describe()[0]


def test_a_column_can_be_given_by_a_numpy_index() -> None:
    encoder = TableEncoder.fit(np.arange(6).reshape(3, 2), column_types={np.int64(1): "category"})
    assert encoder.column_types == {"x0": "number", "x1": "category"}


def test_an_ordinal_column_can_use_the_order_of_the_table() -> None:
    sizes = pd.Categorical(["S", "L", "M"], categories=["S", "M", "L"], ordered=True)
    encoder = TableEncoder.fit(pd.DataFrame({"size": sizes}), column_types={"size": "ordinal"})
    assert encoder.encode([["L"], ["S"], ["XXL"], [None]]).numbers[:, 0].tolist()[:2] == [2.0, 0.0]
    assert encoder.describe() == ["size: ordinal, S < M < L"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"column_types": {"agee": "number"}}, r"column_types: there is no column 'agee'\. Did you mean 'age'\?"),
        ({"column_types": {7: "number"}}, r"column_types: there is no column 7\. Columns: 'age', 'size'"),
        (
            {"column_types": {"age": "numeric"}},
            "column_types: expected one of 'number', 'boolean', .* for 'age'; got 'numeric'",
        ),
        ({"column_types": {"size": "ordinal"}}, r"'size' is ordinal and has no order\. Give it as ordinal_categories="),
        (
            {"ordinal_categories": {"size": ["S", "L"]}},
            "ordinal_categories: 'size' holds 'M', which are not in its order",
        ),
        ({"ordinal_categories": {"size": ["S", "S", "M"]}}, "the order of 'size' is empty, or has a duplicate"),
        (
            {"ordinal_categories": {"size": "SM"}},
            "ordinal_categories: expected a list of values for 'size', lowest first; got 'SM'",
        ),
    ],
    ids=range(7),
)
def test_invalid_column_options_are_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TableEncoder.fit(pd.DataFrame({"age": [1, 2], "size": ["S", "M"]}), **options)


@pytest.mark.parametrize(
    ("column_type", "message"),
    [
        ("number", "column 'c': expected numbers, got 'red' in row 1"),
        ("date", "column 'c': expected dates as 2024-02-29 .*, got '3' in row 0"),
        ("boolean", "column 'c': expected two values, got 3"),
    ],
)
def test_values_must_match_the_given_column_type(column_type: ColumnType, message: str) -> None:
    with pytest.raises(DataError, match=message):
        TableEncoder.fit(pd.DataFrame({"c": ["3", "red", "blue"]}), column_types={"c": column_type})
