"""Tables at the edge of what a table is: a defined answer, or an error that says in a line what is wrong."""

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
TWO = np.array([0, 1] * (N // 2))
WORDS = np.array(["a", "b", "c"] * (N // 3))


@dataclass(frozen=True)
class Case:
    """What is learned from, what is asked for then, and the error if there is to be one."""

    X: Any
    y: Any = None
    ask: Any = None
    error: str | None = None
    fit: tuple[tuple[str, Any], ...] = ()


def frame(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame(columns)


def twins() -> pd.DataFrame:
    return pd.DataFrame(NUMBERS, columns=["same", "same"])


BOTH: dict[str, Case] = {
    "no rows": Case(np.zeros((0, 2)), y=np.zeros(0), error="0 sample"),
    "no rows, pandas": Case(frame(a=[]), y=[], error="0 sample"),
    "no rows, polars": Case(pl.DataFrame({"a": []}), y=[], error="0 sample"),
    "no columns": Case(np.zeros((N, 0)), error="0 feature"),
    "no columns, pandas": Case(pd.DataFrame(index=range(N)), error="0 (feature|sample)"),
    "one row": Case(NUMBERS[:1], y=[1]),
    "two rows": Case(NUMBERS[:2]),
    "one column": Case(NUMBERS[:, :1]),
    "a list that is flat": Case([1.0] * N, error="2D array"),
    "three axes": Case(np.zeros((N, 2, 2)), error="dim"),
    "rows of different lengths": Case([[1.0], [1.0, 2.0]] * (N // 2), error="2D|cells|sequence"),
    "a constant column": Case(np.c_[NUMBERS, np.ones(N)]),
    "only constants": Case(np.ones((N, 2))),
    "all missing": Case(np.full((N, 2), np.nan)),
    "one column all missing": Case(np.c_[NUMBERS, np.full(N, np.nan)]),
    "all None": Case(frame(a=[None] * N)),
    "missing here and there": Case(np.where(NUMBERS > 1, np.nan, NUMBERS)),
    "missing at predict alone": Case(NUMBERS, ask=np.full((3, 2), np.nan)),
    "infinite": Case(np.where(NUMBERS > 1, np.inf, NUMBERS), error="infinity"),
    "infinite, pandas": Case(frame(a=[-np.inf, *range(N - 1)]), error="infinity"),
    "infinite at predict": Case(NUMBERS, ask=np.full((1, 2), np.inf), error="infinity"),
    "enormous numbers": Case(NUMBERS * 1e300),
    "tiny numbers": Case(NUMBERS * 1e-300),
    "two columns of one name": Case(twins(), error="same"),
    "new words": Case(frame(a=WORDS), ask=frame(a=["zebra", None])),
    "a word where numbers were": Case(frame(a=NUMBERS[:, 0]), ask=frame(a=["zebra"]), error="zebra"),
    "numbers where words were": Case(frame(a=WORDS), ask=frame(a=[1.5, 2.5])),
    "only words": Case(frame(a=WORDS, b=WORDS[::-1])),
    "words all distinct": Case(frame(a=[f"id{i}" for i in range(N)])),
    "truth values": Case(frame(a=TWO == 1)),
    "dates": Case(frame(a=[datetime.datetime(2020, 1, 1 + i) for i in range(N)])),
    "categories of pandas": Case(frame(a=pd.Categorical(WORDS, categories=["a", "b", "c", "never"]))),
    "a column less at predict": Case(NUMBERS, ask=NUMBERS[:, :1], error="X has 1 features, but .* is expecting 2"),
    "a column more at predict": Case(NUMBERS, ask=np.c_[NUMBERS, TWO], error="X has 3 features"),
    "other names at predict": Case(frame(a=TWO), ask=frame(b=TWO), error="feature names"),
    "another order at predict": Case(frame(a=TWO, b=TWO), ask=frame(b=TWO, a=TWO), error="same order"),
    "no rows at predict": Case(NUMBERS, ask=NUMBERS[:0], error="0 sample"),
    "lists within cells": Case(frame(a=[[1, 2]] * N), error="string"),
    "complex numbers": Case(NUMBERS + 1j, error="Complex"),
    "a polars table": Case(pl.DataFrame({"a": NUMBERS[:, 0], "b": WORDS})),
    "a pyarrow table": Case(pa.table({"a": NUMBERS[:, 0], "b": WORDS})),
    "y of another length": Case(NUMBERS, y=TWO[:-1], error="inconsistent"),
    "no y": Case(NUMBERS, y="none", error="requires y"),
    "weights all nought": Case(NUMBERS, fit=(("sample_weight", np.zeros(N)),), error="zero"),
    "weights below nought": Case(NUMBERS, fit=(("sample_weight", -np.ones(N)),), error="[Nn]egative"),
    "one row that weighs": Case(NUMBERS, fit=(("sample_weight", np.eye(N)[0]),)),
}
CLASSES: dict[str, Case] = {
    "one class": Case(NUMBERS, y=["only"] * N),
    "a class of one row": Case(NUMBERS, y=[0] * (N - 1) + [1]),
    "a class for every row": Case(NUMBERS, y=list(range(N))),
    "labels missing": Case(NUMBERS, y=np.array(["a", None] * (N // 2), dtype=object), error="NaN"),
    "labels that are NaN": Case(NUMBERS, y=np.where(TWO, np.nan, 1.0), error="NaN"),
    "labels of two kinds": Case(NUMBERS, y=np.array(["a", 1] * (N // 2), dtype=object), error="label|one kind|mix"),
    "labels that are amounts": Case(NUMBERS, y=NUMBERS[:, 0], error="Unknown label type"),
}
AMOUNTS: dict[str, Case] = {
    "a constant target": Case(NUMBERS, y=[0.1] * N),
    "a missing target": Case(NUMBERS, y=np.where(TWO, np.nan, 1.0), error="NaN"),
    "an infinite target": Case(NUMBERS, y=np.where(TWO, np.inf, 1.0), error="infinity"),
    "enormous targets": Case(NUMBERS, y=NUMBERS[:, 0] * 1e300),
    "words as target": Case(NUMBERS, y=WORDS, error="convert|numeric"),
    "three targets": Case(NUMBERS, y=np.random.RandomState(1).randn(N, 3)),
    "no targets": Case(NUMBERS, y=np.zeros((N, 0)), error="0 feature|nothing to predict"),
}


def run(kind: type, case: Case) -> tuple[Any, np.ndarray]:
    y = case.y if case.y is not None else TWO[: len(case.X)]
    model = small(kind, epochs=2)
    model.fit(case.X, None if isinstance(y, str) else y, **dict(case.fit))
    return model, model.predict(case.X if case.ask is None else case.ask)


def check(kind: type, case: Case, good: Callable[[Any, np.ndarray], bool]) -> None:
    if case.error is None:
        model, said = run(kind, case)
        assert len(said) == len(case.X if case.ask is None else case.ask)
        assert good(model, said)
        return
    with pytest.raises((ValueError, TypeError), match=case.error) as raised:
        run(kind, case)
    assert "Traceback" not in str(raised.value)


def named(model: Any, said: np.ndarray) -> bool:
    return bool(np.isin(said, model.classes_).all())


def finite(model: Any, said: np.ndarray) -> bool:
    return bool(np.isfinite(said).all())


@pytest.mark.parametrize("kind", CLASSIFIERS)
@pytest.mark.parametrize("case", (BOTH | CLASSES).values(), ids=(BOTH | CLASSES).keys())
def test_a_classifier_answers_or_says_why_not(kind: type, case: Case) -> None:
    check(kind, case, named)


@pytest.mark.parametrize("kind", REGRESSORS)
@pytest.mark.parametrize("case", (BOTH | AMOUNTS).values(), ids=(BOTH | AMOUNTS).keys())
def test_a_regressor_answers_or_says_why_not(kind: type, case: Case) -> None:
    check(kind, case, finite)


def test_a_constant_target_is_answered_to_the_bit() -> None:
    assert (run(REGRESSORS[0], AMOUNTS["a constant target"])[1] == 0.1).all()


def test_a_single_class_is_certain() -> None:
    model, said = run(CLASSIFIERS[0], CLASSES["one class"])
    assert (said == "only").all()
    assert (model.predict_proba(NUMBERS) == 1).all()
