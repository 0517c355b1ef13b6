"""Degenerate tables give a valid prediction or a clear error."""

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from tests.tabular.estimators import CLASSIFIERS, REGRESSORS, small

N = 12
NUMBERS = np.random.RandomState(0).randn(N, 2)
BINARY = np.array([0, 1] * (N // 2))
STRINGS = np.array(["a", "b", "c"] * (N // 3))


@dataclass(frozen=True)
class Case:
    """Training data, the table to predict (X by default), and the expected error, if any."""

    X: Any
    y: Any = None
    new_rows: Any = None
    error: str | None = None
    fit: tuple[tuple[str, Any], ...] = ()


def frame(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame(columns)


def with_duplicate_names() -> pd.DataFrame:
    return pd.DataFrame(NUMBERS, columns=["same", "same"])


COMMON: dict[str, Case] = {
    "no rows": Case(np.zeros((0, 2)), y=np.zeros(0), error="0 sample"),
    "no rows, pandas": Case(frame(a=[]), y=[], error="0 sample"),
    "no rows, polars": Case(pl.DataFrame({"a": []}), y=[], error="0 sample"),
    "no columns": Case(np.zeros((N, 0)), error="0 feature"),
    "no columns, pandas": Case(pd.DataFrame(index=range(N)), error="0 (feature|sample)"),
    "one row": Case(NUMBERS[:1], y=[1]),
    "two rows": Case(NUMBERS[:2]),
    "one column": Case(NUMBERS[:, :1]),
    "flat list": Case([1.0] * N, error="2D array"),
    "three dimensions": Case(np.zeros((N, 2, 2)), error="dim"),
    "rows of different lengths": Case([[1.0], [1.0, 2.0]] * (N // 2), error="2D|cells|sequence"),
    "constant column": Case(np.c_[NUMBERS, np.ones(N)]),
    "only constant columns": Case(np.ones((N, 2))),
    "all missing": Case(np.full((N, 2), np.nan)),
    "one column all missing": Case(np.c_[NUMBERS, np.full(N, np.nan)]),
    "all None": Case(frame(a=[None] * N)),
    "some missing": Case(np.where(NUMBERS > 1, np.nan, NUMBERS)),
    "missing at predict only": Case(NUMBERS, new_rows=np.full((3, 2), np.nan)),
    "infinite": Case(np.where(NUMBERS > 1, np.inf, NUMBERS), error="infinity"),
    "infinite, pandas": Case(frame(a=[-np.inf, *range(N - 1)]), error="infinity"),
    "infinite at predict": Case(NUMBERS, new_rows=np.full((1, 2), np.inf), error="infinity"),
    "enormous numbers": Case(NUMBERS * 1e300),
    "tiny numbers": Case(NUMBERS * 1e-300),
    "duplicate column names": Case(with_duplicate_names(), error="same"),
    "unseen categories": Case(frame(a=STRINGS), new_rows=frame(a=["zebra", None])),
    "string in a numeric column": Case(frame(a=NUMBERS[:, 0]), new_rows=frame(a=["zebra"]), error="zebra"),
    "numbers in a categorical column": Case(frame(a=STRINGS), new_rows=frame(a=[1.5, 2.5])),
    "only strings": Case(frame(a=STRINGS, b=STRINGS[::-1])),
    "unique strings": Case(frame(a=[f"id{i}" for i in range(N)])),
    "booleans": Case(frame(a=BINARY == 1)),
    "dates": Case(frame(a=[datetime.datetime(2020, 1, 1 + i) for i in range(N)])),
    "pandas categories": Case(frame(a=pd.Categorical(STRINGS, categories=["a", "b", "c", "never"]))),
    "one column fewer at predict": Case(
        NUMBERS, new_rows=NUMBERS[:, :1], error="X has 1 features, but .* is expecting 2"
    ),
    "one column more at predict": Case(NUMBERS, new_rows=np.c_[NUMBERS, BINARY], error="X has 3 features"),
    "different names at predict": Case(frame(a=BINARY), new_rows=frame(b=BINARY), error="feature names"),
    "different order at predict": Case(
        frame(a=BINARY, b=BINARY), new_rows=frame(b=BINARY, a=BINARY), error="same order"
    ),
    "no rows at predict": Case(NUMBERS, new_rows=NUMBERS[:0], error="0 sample"),
    "lists in cells": Case(frame(a=[[1, 2]] * N), error="string"),
    "complex numbers": Case(NUMBERS + 1j, error="Complex"),
    "polars table": Case(pl.DataFrame({"a": NUMBERS[:, 0], "b": STRINGS})),
    "pyarrow table": Case(pa.table({"a": NUMBERS[:, 0], "b": STRINGS})),
    "y of different length": Case(NUMBERS, y=BINARY[:-1], error="inconsistent"),
    "no y": Case(NUMBERS, y="none", error="requires y"),
    "zero weights": Case(NUMBERS, fit=(("sample_weight", np.zeros(N)),), error="zero"),
    "negative weights": Case(NUMBERS, fit=(("sample_weight", -np.ones(N)),), error="[Nn]egative"),
    "one row with a weight": Case(NUMBERS, fit=(("sample_weight", np.eye(N)[0]),)),
}
CLASSIFICATION: dict[str, Case] = {
    "one class": Case(NUMBERS, y=["only"] * N),
    "class of one row": Case(NUMBERS, y=[0] * (N - 1) + [1]),
    "one class per row": Case(NUMBERS, y=list(range(N))),
    "missing labels": Case(NUMBERS, y=np.array(["a", None] * (N // 2), dtype=object), error="NaN"),
    "NaN labels": Case(NUMBERS, y=np.where(BINARY, np.nan, 1.0), error="NaN"),
    "labels of mixed types": Case(NUMBERS, y=np.array(["a", 1] * (N // 2), dtype=object), error="labels of one type"),
    "continuous labels": Case(NUMBERS, y=NUMBERS[:, 0], error="Unknown label type"),
}
REGRESSION: dict[str, Case] = {
    "constant target": Case(NUMBERS, y=[0.1] * N),
    "missing target": Case(NUMBERS, y=np.where(BINARY, np.nan, 1.0), error="NaN"),
    "infinite target": Case(NUMBERS, y=np.where(BINARY, np.inf, 1.0), error="infinity"),
    "enormous targets": Case(NUMBERS, y=NUMBERS[:, 0] * 1e300),
    "strings as target": Case(NUMBERS, y=STRINGS, error="convert|numeric"),
    "three targets": Case(NUMBERS, y=np.random.RandomState(1).randn(N, 3)),
    "no targets": Case(NUMBERS, y=np.zeros((N, 0)), error="0 feature|nothing to predict"),
}


def fit_predict(estimator_class: type, case: Case) -> tuple[Any, np.ndarray]:
    y = case.y if case.y is not None else BINARY[: len(case.X)]
    model = small(estimator_class, epochs=2)
    model.fit(case.X, None if isinstance(y, str) else y, **dict(case.fit))
    return model, model.predict(case.X if case.new_rows is None else case.new_rows)


def check(estimator_class: type, case: Case, is_valid: Callable[[Any, np.ndarray], bool]) -> None:
    if case.error is None:
        model, predictions = fit_predict(estimator_class, case)
        assert len(predictions) == len(case.X if case.new_rows is None else case.new_rows)
        assert is_valid(model, predictions)
        return
    with pytest.raises((ValueError, TypeError), match=case.error) as error:
        fit_predict(estimator_class, case)
    assert "Traceback" not in str(error.value)


def known_classes(model: Any, predictions: np.ndarray) -> bool:
    return bool(np.isin(predictions, model.classes_).all())


def all_finite(model: Any, predictions: np.ndarray) -> bool:
    return bool(np.isfinite(predictions).all())


@pytest.mark.parametrize("estimator_class", CLASSIFIERS)
@pytest.mark.parametrize("case", (COMMON | CLASSIFICATION).values(), ids=(COMMON | CLASSIFICATION).keys())
def test_a_classifier_predicts_or_raises_a_clear_error(estimator_class: type, case: Case) -> None:
    check(estimator_class, case, known_classes)


@pytest.mark.parametrize("estimator_class", REGRESSORS)
@pytest.mark.parametrize("case", (COMMON | REGRESSION).values(), ids=(COMMON | REGRESSION).keys())
def test_a_regressor_predicts_or_raises_a_clear_error(estimator_class: type, case: Case) -> None:
    check(estimator_class, case, all_finite)


def test_a_constant_target_is_predicted_exactly() -> None:
    assert (fit_predict(REGRESSORS[0], REGRESSION["constant target"])[1] == 0.1).all()


def test_a_single_class_has_probability_1() -> None:
    model, predictions = fit_predict(CLASSIFIERS[0], CLASSIFICATION["one class"])
    assert (predictions == "only").all()
    assert (model.predict_proba(NUMBERS) == 1).all()
