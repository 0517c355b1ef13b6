"""Unusual inputs of the estimators are accepted as their plain equivalents, or rejected with a helpful message."""

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

N = 60  # enough for a validation split
NUMBERS = np.random.RandomState(0).randn(N)
INTEGERS = np.arange(N) % 7
STRINGS = np.array(["a", "b", "c"])[np.arange(N) % 3]
BOOLEANS = np.arange(N) % 2 == 0
HOURS = np.arange(N).astype("m8[h]")
TABLE = pd.DataFrame({"number": NUMBERS, "letter": STRINGS})
INTEGERS_WITH_MISSING = [None, *range(N - 1)]


def one_column(column: Any) -> pd.DataFrame:
    return pd.DataFrame({"c": column})


def fit_predict(X: Any, y: Any = BOOLEANS, **fit_params: Any) -> np.ndarray:
    return small(TableTransformerClassifier, dim=8, depth=1, epochs=1).fit(X, y, **fit_params).predict_proba(X)


TABLES: dict[str, tuple[Any, Any]] = {
    "numbers as column names": (TABLE.set_axis([7, 3], axis=1), TABLE),
    "dates as column names": (TABLE.set_axis(pd.to_datetime(["2020", "2021"]), axis=1), TABLE),
    "column names of two levels": (TABLE.set_axis(pd.MultiIndex.from_tuples([("a", "b"), ("a", "c")]), axis=1), TABLE),
    "very long column names": (TABLE.set_axis(["n" * 10_000, "w" * 10_000], axis=1), TABLE),
    "an empty column name, and one of two lines": (TABLE.set_axis(["", "a\nb"], axis=1), TABLE),
    "duplicate index": (TABLE.set_axis([0] * N, axis=0), TABLE),
    "unused categories": (one_column(pd.Categorical(STRINGS, categories=list("zabcy"))), one_column(STRINGS)),
    "pandas Int64 with missing values": (
        one_column(pd.array(INTEGERS_WITH_MISSING, dtype="Int64")),
        one_column([np.nan, *range(N - 1)]),
    ),
    "pandas boolean with missing values": (
        one_column(pd.array([None, *BOOLEANS[1:]], dtype="boolean")),
        one_column(pd.Series([None, *BOOLEANS[1:].tolist()], dtype=object)),
    ),
    "pandas string with missing values": (
        one_column(pd.array([None, *STRINGS[1:]], dtype="string")),
        one_column([None, *STRINGS[1:]]),
    ),
    "pandas column of a pyarrow dictionary": (
        one_column(pd.Series(STRINGS).astype(pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string())))),
        one_column(STRINGS),
    ),
    "pandas durations": (one_column(pd.to_timedelta(np.arange(N), unit="h")), one_column(np.arange(N) * 3600)),
    "polars Categorical": (pl.DataFrame({"c": pl.Series(STRINGS.tolist(), dtype=pl.Categorical)}), one_column(STRINGS)),
    "polars Enum": (
        pl.DataFrame({"c": pl.Series(STRINGS.tolist(), dtype=pl.Enum(list("xabc")))}),
        one_column(pd.Categorical(STRINGS, categories=list("xabc"), ordered=True)),
    ),
    "polars Decimal": (pl.DataFrame({"c": [Decimal(i) / 10 for i in range(N)]}), one_column(np.arange(N) / 10)),
    "polars Duration": (pl.DataFrame({"c": HOURS.astype("m8[us]")}), one_column(np.arange(N) * 3600)),
    "pyarrow dictionary": (pa.table({"c": pa.array(STRINGS).dictionary_encode()}), one_column(STRINGS)),
    "pyarrow run-end encoding": (pa.table({"c": pc.run_end_encode(pa.array(INTEGERS))}), one_column(INTEGERS)),  # pyright: ignore[reportAttributeAccessIssue]
    "pyarrow record batch": (pa.RecordBatch.from_pandas(TABLE), TABLE),
    "narwhals frame": (nw.from_native(TABLE), TABLE),
    "tensor": (torch.tensor(NUMBERS[:, None]), NUMBERS[:, None]),
    "masked cells": (
        np.ma.masked_less(NUMBERS[:, None], 0),
        np.where(NUMBERS[:, None] < 0, np.nan, NUMBERS[:, None]),
    ),
    "numpy StringDType": (STRINGS.astype(np.dtypes.StringDType())[:, None], STRINGS[:, None]),
    "durations in hours": (HOURS[:, None], HOURS[:, None].astype("m8[s]")),
    "list of durations in hours": ([[hours] for hours in HOURS], HOURS[:, None].astype("m8[s]")),
    "datetimes in hours": (
        HOURS.astype(int).astype("M8[h]")[:, None],
        HOURS.astype(int).astype("M8[h]").astype("M8[s]")[:, None],
    ),
    "list of days": (
        [[day] for day in np.arange(N).astype("M8[D]")],
        [[dt.date(1970, 1, 1) + dt.timedelta(days=day)] for day in range(N)],
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_an_unusual_table_is_equivalent_to_a_plain_one(name: str) -> None:
    unusual, plain = TABLES[name]
    np.testing.assert_array_equal(fit_predict(unusual), fit_predict(plain))


def test_a_pyarrow_record_batch_keeps_its_column_names() -> None:
    model = small(TableTransformerClassifier, epochs=1).fit(pa.RecordBatch.from_pandas(TABLE), BOOLEANS)
    assert model.feature_names_in_.tolist() == ["number", "letter"]


LABELS: dict[str, tuple[Any, Any]] = {
    "Categorical with unused categories": (pd.Categorical(STRINGS, categories=list("zcba")), STRINGS),
    "Series of categories": (pd.Series(STRINGS, dtype="category"), STRINGS),
    "string": (pd.Series(STRINGS, dtype="string"), STRINGS),
    "Int64": (pd.Series(INTEGERS, dtype="Int64"), INTEGERS),
    "boolean with a reversed index": (
        pd.Series(BOOLEANS, dtype="boolean", index=range(N)[::-1]),
        BOOLEANS,
    ),
    "polars Enum": (pl.Series(STRINGS.tolist(), dtype=pl.Enum(list("abc"))), STRINGS),
    "pyarrow dictionary": (pa.array(STRINGS).dictionary_encode(), STRINGS),
    "tensor": (torch.tensor(INTEGERS), INTEGERS),
}


@pytest.mark.parametrize("name", LABELS)
def test_unusual_labels_are_equivalent_to_plain_ones(name: str) -> None:
    unusual, plain = LABELS[name]
    fitted = [small(TableTransformerClassifier, dim=8, depth=1, epochs=1).fit(TABLE, y) for y in (unusual, plain)]
    np.testing.assert_array_equal(*(model.predict(TABLE) for model in fitted))
    assert fitted[0].classes_.tolist() == np.unique(plain).tolist()


def test_a_column_vector_of_labels_is_accepted_with_scikit_learns_warning() -> None:
    for y in (pd.DataFrame({"y": BOOLEANS}), pl.DataFrame({"y": BOOLEANS})):
        with pytest.warns(DataConversionWarning, match="column-vector y"):
            probabilities = fit_predict(TABLE, y)
        np.testing.assert_array_equal(probabilities, fit_predict(TABLE))
    regressor = small(TableTransformerRegressor, epochs=1).fit(TABLE, pd.DataFrame({"y": NUMBERS}))
    assert regressor.predict(TABLE).shape == (N, 1)


WEIGHTS = {
    "list": (INTEGERS + 1).tolist(),
    "Series with a duplicate index": pd.Series(INTEGERS + 1, index=[0] * N),
    "polars Series": pl.Series(INTEGERS + 1),
    "pyarrow array": pa.array(INTEGERS + 1),
    "Float64": pd.array(INTEGERS + 1, dtype="Float64"),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_sample_weights_may_have_any_array_type(name: str) -> None:
    expected = fit_predict(TABLE, sample_weight=(INTEGERS + 1).astype(float))
    np.testing.assert_array_equal(fit_predict(TABLE, sample_weight=WEIGHTS[name]), expected)


def test_date_labels_are_saved_and_loaded(tmp_path: Path) -> None:
    days = np.array(["2024-02-28", "2024-02-29"], dtype="M8[D]")[BOOLEANS.astype(int)]
    model = small(TableTransformerClassifier, epochs=1).fit(TABLE, days)
    loaded = load(model.save(tmp_path / "model"))
    assert loaded.classes_.dtype == model.classes_.dtype
    np.testing.assert_array_equal(loaded.predict(TABLE), model.predict(TABLE))


class Color(Enum):
    RED = 1
    BLUE = 2


CELL = "each argument must be a string, a date or a number"
ESTIMATOR_PARAMS = ("column_types", "ordinal_categories", "class_weight")
INVALID: dict[str, tuple[dict[str, Any], str]] = {
    "column names of two types": ({"X": TABLE.set_axis(["a", 1], axis=1)}, "all input features have string names"),
    "lists in cells": ({"X": pl.DataFrame({"c": [[1, 2]] * N})}, f"column 'c' holds .*list.*: {CELL}"),
    "structs in cells": ({"X": pl.DataFrame({"c": [{"x": 1}] * N})}, f"column 'c' holds struct.*: {CELL}"),
    "bytes": ({"X": one_column([b"x", b"y"] * (N // 2))}, f"column 'c' holds binary: {CELL}"),
    "lazy frame": ({"X": pl.from_pandas(TABLE).lazy()}, r"X is a lazy frame\. Call X\.collect\(\) first"),
    "duplicate pyarrow names": (
        {"X": pa.table([NUMBERS, STRINGS], names=["a", "a"])},
        "more than one column is named 'a'",
    ),
    "duplicate pandas names": ({"X": TABLE.set_axis(["a", "a"], axis=1)}, "more than one column is named 'a'"),
    "structured array": ({"X": TABLE.to_records()}, "expected a table in X, got a structured array"),
    "dict": ({"X": TABLE.to_dict("list")}, "expected a table in X, got a dict"),
    "list of dicts": ({"X": TABLE.to_dict("records")}, "expected a table in X, got a list of dicts"),
    "missing labels": ({"y": pd.array([None, *STRINGS[1:]], dtype="string")}, "Input y contains NaN or None"),
    "missing booleans": ({"y": pd.Series([None, *BOOLEANS[1:]], dtype="boolean")}, "Input y contains NaN or None"),
    "missing integers": ({"y": pd.array([None, *INTEGERS[1:]], dtype="Int64")}, "Input y contains NaN"),
    "missing category": ({"y": pd.Categorical([None, *STRINGS[1:]])}, "Input y contains NaN or None"),
    "masked labels": ({"y": np.ma.masked_equal(INTEGERS, 3)}, "Input y contains NaN: some of it is masked"),
    "NaT label": (
        {"y": np.array(["NaT", "2024-01-01"] * (N // 2), "M8[D]")},
        "Input y contains NaN or None",
    ),
    "numbers as objects": ({"y": pd.Series(INTEGERS.tolist(), dtype=object)}, r"Set a dtype: y.astype\(int\)"),
    "members of an Enum": ({"y": list(Color) * (N // 2)}, r"Color as a Python object. .*y.astype\(str\)"),
    "column name as y": (
        {"y": "letter"},
        r"'letter', only if X is chunked.* y=X\['letter'\], and X without",
    ),
    "column name as sample_weight": (
        {"sample_weight": "letter"},
        "sample_weight may be a column name, 'letter', only",
    ),
    "missing weights": ({"sample_weight": [np.nan] * N}, "sample_weight contains NaN"),
    "weights as a table": ({"sample_weight": pd.DataFrame({"w": INTEGERS})}, "Sample weights must be 1D"),
    "eval_set of three": (
        {"eval_set": (TABLE, BOOLEANS, INTEGERS)},
        r"eval_set: expected \(X, y\); got a tuple of 3",
    ),
    "eval_set as a fraction": ({"eval_set": 0.2}, r"eval_set: expected \(X, y\); got a float"),
    "column_types as a list": (
        {"column_types": ["number", "category"]},
        r"column_types: expected a dict by column name, {'number': \.\.\.}",
    ),
    "order that is no list": (
        {"ordinal_categories": {"letter": 3}},
        "ordinal_categories: expected a list of values for 'letter', lowest first; got 3",
    ),
    "order that is None": ({"ordinal_categories": {"letter": None}}, "'letter' is ordinal and has no order"),
    "weight of an unknown class": (
        {"class_weight": {"True": 2}},
        "class_weight: 'True' is not a class. The classes are False, True",
    ),
    "negative class weight": ({"class_weight": {True: -2}}, "class_weight: expected a number >= 0 for True; got -2"),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_inputs_are_rejected_with_a_helpful_message(name: str) -> None:
    given, message = INVALID[name]
    params = {key: value for key, value in given.items() if key in ESTIMATOR_PARAMS}
    fit_params = {key: value for key, value in given.items() if key not in ESTIMATOR_PARAMS}
    model = small(TableTransformerClassifier, epochs=1, **params)
    with pytest.raises((ValueError, TypeError), match=message):
        model.fit(**({"X": TABLE, "y": BOOLEANS} | fit_params))


@pytest.mark.parametrize(
    "y", [pd.date_range("2020", periods=N), pd.to_timedelta(INTEGERS, unit="h")], ids=["dates", "durations"]
)
def test_a_regressor_rejects_times(y: Any) -> None:
    with pytest.raises(
        ValueError, match="expected numbers in y, got times\nhelp: convert them to a unit of your choice"
    ):
        small(TableTransformerRegressor, epochs=1).fit(TABLE, y)


def test_class_weights_may_include_a_class_without_rows_if_all_others_are_included() -> None:
    weights = {False: 1.0, True: 2.0}
    actual, expected = (
        small(TableTransformerClassifier, epochs=1, class_weight=own).fit(TABLE, BOOLEANS).predict_proba(TABLE)
        for own in (weights | {"never": 3.0}, weights)
    )
    np.testing.assert_array_equal(actual, expected)
