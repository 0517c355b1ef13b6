"""Odd things that people give estimators: read as what they mean, or refused in a line that says what to do."""

import datetime as dt
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch
from sklearn.exceptions import DataConversionWarning

from softlook.tabular import TableTransformerClassifier, TableTransformerRegressor, load
from tests.tabular.estimators import small

N = 60  # enough for some of them to be held out
NUMBERS = np.random.RandomState(0).randn(N)
WHOLE = np.arange(N) % 7
WORDS = np.array(["a", "b", "c"])[np.arange(N) % 3]
BOOLEANS = np.arange(N) % 2 == 0
HOURS = np.arange(N).astype("m8[h]")
TABLE = pd.DataFrame({"number": NUMBERS, "word": WORDS})
SOME = [None, *range(N - 1)]


def one(column: Any) -> pd.DataFrame:
    return pd.DataFrame({"c": column})


def predict_rows(X: Any, y: Any = BOOLEANS, **more: Any) -> np.ndarray:
    return small(TableTransformerClassifier, dim=8, depth=1, epochs=1).fit(X, y, **more).predict_proba(X)


TABLES: dict[str, tuple[Any, Any]] = {
    "numbers as names of columns": (TABLE.set_axis([7, 3], axis=1), TABLE),
    "days as names of columns": (TABLE.set_axis(pd.to_datetime(["2020", "2021"]), axis=1), TABLE),
    "names in two levels": (TABLE.set_axis(pd.MultiIndex.from_tuples([("a", "b"), ("a", "c")]), axis=1), TABLE),
    "very long names": (TABLE.set_axis(["n" * 10_000, "w" * 10_000], axis=1), TABLE),
    "a name that is empty, and one of two lines": (TABLE.set_axis(["", "a\nb"], axis=1), TABLE),
    "rows that share a name": (TABLE.set_axis([0] * N, axis=0), TABLE),
    "levels without rows": (one(pd.Categorical(WORDS, categories=list("zabcy"))), one(WORDS)),
    "whole numbers with gaps, Int64": (one(pd.array(SOME, dtype="Int64")), one([np.nan, *range(N - 1)])),
    "truths with gaps, boolean": (
        one(pd.array([None, *BOOLEANS[1:]], dtype="boolean")),
        one(pd.Series([None, *BOOLEANS[1:].tolist()], dtype=object)),
    ),
    "words with gaps, string": (one(pd.array([None, *WORDS[1:]], dtype="string")), one([None, *WORDS[1:]])),
    "a dictionary of pyarrow in pandas": (
        one(pd.Series(WORDS).astype(pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string())))),
        one(WORDS),
    ),
    "durations of pandas": (one(pd.to_timedelta(np.arange(N), unit="h")), one(np.arange(N) * 3600)),
    "a Categorical of polars": (pl.DataFrame({"c": pl.Series(WORDS.tolist(), dtype=pl.Categorical)}), one(WORDS)),
    "an Enum of polars": (
        pl.DataFrame({"c": pl.Series(WORDS.tolist(), dtype=pl.Enum(list("xabc")))}),
        one(pd.Categorical(WORDS, categories=list("xabc"), ordered=True)),
    ),
    "a Decimal of polars": (pl.DataFrame({"c": [Decimal(i) / 10 for i in range(N)]}), one(np.arange(N) / 10)),
    "a Duration of polars": (pl.DataFrame({"c": HOURS.astype("m8[us]")}), one(np.arange(N) * 3600)),
    "a dictionary of pyarrow": (pa.table({"c": pa.array(WORDS).dictionary_encode()}), one(WORDS)),
    "runs of pyarrow": (pa.table({"c": pc.run_end_encode(pa.array(WHOLE))}), one(WHOLE)),  # pyright: ignore[reportAttributeAccessIssue]
    "a batch of pyarrow": (pa.RecordBatch.from_pandas(TABLE), TABLE),
    "a frame of narwhals": (nw.from_native(TABLE), TABLE),
    "a tensor": (torch.tensor(NUMBERS[:, None]), NUMBERS[:, None]),
    "cells under a mask": (
        np.ma.masked_less(NUMBERS[:, None], 0),
        np.where(NUMBERS[:, None] < 0, np.nan, NUMBERS[:, None]),
    ),
    "numpy's own strings": (WORDS.astype(np.dtypes.StringDType())[:, None], WORDS[:, None]),
    "durations in hours": (HOURS[:, None], HOURS[:, None].astype("m8[s]")),
    "durations in hours, in a list": ([[hours] for hours in HOURS], HOURS[:, None].astype("m8[s]")),
    "times in hours": (
        HOURS.astype(int).astype("M8[h]")[:, None],
        HOURS.astype(int).astype("M8[h]").astype("M8[s]")[:, None],
    ),
    "days in a list": (
        [[day] for day in np.arange(N).astype("M8[D]")],
        [[dt.date(1970, 1, 1) + dt.timedelta(days=day)] for day in range(N)],
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_an_odd_table_is_learned_from_as_the_plain_one_that_it_means(name: str) -> None:
    odd, plain = TABLES[name]
    np.testing.assert_array_equal(predict_rows(odd), predict_rows(plain))


def test_a_batch_of_pyarrow_keeps_the_names_of_its_columns() -> None:
    model = small(TableTransformerClassifier, epochs=1).fit(pa.RecordBatch.from_pandas(TABLE), BOOLEANS)
    assert model.feature_names_in_.tolist() == ["number", "word"]


LABELS: dict[str, tuple[Any, Any]] = {
    "a Categorical with levels that never come": (pd.Categorical(WORDS, categories=list("zcba")), WORDS),
    "a Series of categories": (pd.Series(WORDS, dtype="category"), WORDS),
    "string": (pd.Series(WORDS, dtype="string"), WORDS),
    "Int64": (pd.Series(WHOLE, dtype="Int64"), WHOLE),
    "boolean, and rows in another order of names": (
        pd.Series(BOOLEANS, dtype="boolean", index=range(N)[::-1]),
        BOOLEANS,
    ),
    "an Enum of polars": (pl.Series(WORDS.tolist(), dtype=pl.Enum(list("abc"))), WORDS),
    "a dictionary of pyarrow": (pa.array(WORDS).dictionary_encode(), WORDS),
    "a tensor": (torch.tensor(WHOLE), WHOLE),
}


@pytest.mark.parametrize("name", LABELS)
def test_odd_labels_mean_what_plain_ones_do(name: str) -> None:
    odd, plain = LABELS[name]
    fitted = [small(TableTransformerClassifier, dim=8, depth=1, epochs=1).fit(TABLE, y) for y in (odd, plain)]
    np.testing.assert_array_equal(*(model.predict(TABLE) for model in fitted))
    assert fitted[0].classes_.tolist() == np.unique(plain).tolist()


def test_a_column_of_labels_is_taken_with_the_warning_of_scikit_learn() -> None:
    for y in (pd.DataFrame({"y": BOOLEANS}), pl.DataFrame({"y": BOOLEANS})):
        with pytest.warns(DataConversionWarning, match="column-vector y"):
            found = predict_rows(TABLE, y)
        np.testing.assert_array_equal(found, predict_rows(TABLE))
    is_regression = small(TableTransformerRegressor, epochs=1).fit(TABLE, pd.DataFrame({"y": NUMBERS}))
    assert is_regression.predict(TABLE).shape == (N, 1)


WEIGHTS = {
    "a list": (WHOLE + 1).tolist(),
    "a Series whose rows share a name": pd.Series(WHOLE + 1, index=[0] * N),
    "a Series of polars": pl.Series(WHOLE + 1),
    "an array of pyarrow": pa.array(WHOLE + 1),
    "Float64": pd.array(WHOLE + 1, dtype="Float64"),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_may_come_in_anything(name: str) -> None:
    targets = predict_rows(TABLE, sample_weight=(WHOLE + 1).astype(float))
    np.testing.assert_array_equal(predict_rows(TABLE, sample_weight=WEIGHTS[name]), targets)


def test_labels_that_are_days_come_back_from_a_folder(tmp_path: Path) -> None:
    days = np.array(["2024-02-28", "2024-02-29"], dtype="M8[D]")[BOOLEANS.astype(int)]
    model = small(TableTransformerClassifier, epochs=1).fit(TABLE, days)
    again = load(model.save(tmp_path / "one"))
    assert again.classes_.dtype == model.classes_.dtype
    np.testing.assert_array_equal(again.predict(TABLE), model.predict(TABLE))


class Color(Enum):
    RED = 1
    BLUE = 2


CELL = "each argument must be a string, a date or a number"
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "names of two kinds": ({"X": TABLE.set_axis(["a", 1], axis=1)}, "all input features have string names"),
    "a list in each cell": ({"X": pl.DataFrame({"c": [[1, 2]] * N})}, f"column 'c' holds .*list.*: {CELL}"),
    "a struct in each cell": ({"X": pl.DataFrame({"c": [{"x": 1}] * N})}, f"column 'c' holds struct.*: {CELL}"),
    "bytes": ({"X": one([b"x", b"y"] * (N // 2))}, f"column 'c' holds binary: {CELL}"),
    "a table that is not read yet": ({"X": pl.from_pandas(TABLE).lazy()}, r"not read yet. Call X.collect\(\) first"),
    "twins of pyarrow": ({"X": pa.table([NUMBERS, WORDS], names=["a", "a"])}, "more than one column is named 'a'"),
    "twins of pandas": ({"X": TABLE.set_axis(["a", "a"], axis=1)}, "more than one column is named 'a'"),
    "a structured array": ({"X": TABLE.to_records()}, "X is to be a table; a structured array came"),
    "a dict": ({"X": TABLE.to_dict("list")}, "X is to be a table; a dict came"),
    "a list of dicts": ({"X": TABLE.to_dict("records")}, "X is to be a table; a list of dicts came"),
    "labels that are NA": ({"y": pd.array([None, *WORDS[1:]], dtype="string")}, "Input y contains NaN, or None"),
    "truths that are NA": ({"y": pd.Series([None, *BOOLEANS[1:]], dtype="boolean")}, "Input y contains NaN, or None"),
    "numbers that are NA": ({"y": pd.array([None, *WHOLE[1:]], dtype="Int64")}, "Input y contains NaN"),
    "a category that is missing": ({"y": pd.Categorical([None, *WORDS[1:]])}, "Input y contains NaN, or None"),
    "labels under a mask": ({"y": np.ma.masked_equal(WHOLE, 3)}, "Input y contains NaN: some of it is masked"),
    "a label that is NaT": (
        {"y": np.array(["NaT", "2024-01-01"] * (N // 2), "M8[D]")},
        "Input y contains NaN, or None",
    ),
    "numbers as objects": ({"y": pd.Series(WHOLE.tolist(), dtype=object)}, r"Give y a type: y.astype\(int\)"),
    "members of an enumeration": ({"y": list(Color) * (N // 2)}, r"Color as a Python object. .*y.astype\(str\)"),
    "the name of a column as y": (
        {"y": "word"},
        r"'word', only where X comes in pieces.* y=X\['word'\], and X without",
    ),
    "the name of a column as weight": (
        {"sample_weight": "word"},
        "sample_weight is the name of a column, 'word', only",
    ),
    "weights that are missing": ({"sample_weight": [np.nan] * N}, "sample_weight contains NaN"),
    "weights in a column": ({"sample_weight": pd.DataFrame({"w": WHOLE})}, "Sample weights must be 1D"),
    "three things to stop by": (
        {"eval_set": (TABLE, BOOLEANS, WHOLE)},
        r"validation is \(X, y\), .*; a tuple of 3 came",
    ),
    "a share to stop by": ({"eval_set": 0.2}, r"validation is \(X, y\), rows to stop by; a float came"),
    "kinds in a list": (
        {"column_types": ["number", "category"]},
        r"kinds goes by the names of columns, as {'number': ...}",
    ),
    "an order that is no list": (
        {"ordinal_categories": {"word": 3}},
        "the order of 'word' is a list of its values, lowest first; 3",
    ),
    "an order that is None": ({"ordinal_categories": {"word": None}}, r"'word' is ordinal, in what order\?"),
    "a weight for no class": (
        {"class_weight": {"True": 2}},
        "class_weight names 'True', which is no class. .* False, True",
    ),
    "a class that weighs less than nothing": ({"class_weight": {True: -2}}, "a number from 0 up; True has -2"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_in_a_line_that_says_what_to_do(name: str) -> None:
    given, words = REFUSED[name]
    fit = {"X": TABLE, "y": BOOLEANS} | {
        key: given[key] for key in given if key not in ("kinds", "ordinal", "class_weight")
    }
    model = small(TableTransformerClassifier, epochs=1, **{key: given[key] for key in given if key not in fit})
    with pytest.raises((ValueError, TypeError), match=words):
        model.fit(**fit)


@pytest.mark.parametrize(
    "y", [pd.date_range("2020", periods=N), pd.to_timedelta(WHOLE, unit="h")], ids=["dates", "durations"]
)
def test_an_amount_of_time_is_wanted_in_numbers(y: Any) -> None:
    with pytest.raises(ValueError, match="y is to hold numbers; times came\nhelp: count them in a unit of your choice"):
        small(TableTransformerRegressor, epochs=1).fit(TABLE, y)


def test_a_class_that_is_not_among_the_rows_may_have_a_weight_if_all_others_have() -> None:
    weights = {False: 1.0, True: 2.0, "never": 3.0}
    found, targets = (
        small(TableTransformerClassifier, epochs=1, class_weight=told).fit(TABLE, BOOLEANS).predict_proba(TABLE)
        for told in (weights, {False: 1.0, True: 2.0})
    )
    np.testing.assert_array_equal(found, targets)
