"""Warm starts: which parameters may change."""

from dataclasses import replace
from typing import Any

import pytest

from softlook.base.errors import ConfigError
from softlook.tabular import PRESETS, TableTransformerClassifier
from tests.tabular.estimators import ALL, mixed_table, small

X, Y = mixed_table()

INVALID: dict[str, tuple[Any, str]] = {
    "dim": (32, "expected dim=16, got dim=32"),
    "heads": (4, "expected heads=2, got heads=4"),
    "dropout": (0.5, "expected dropout=0.0, got dropout=0.5"),
    "attention_dropout": (0.5, "expected attention_dropout=0.2, got attention_dropout=0.5"),
    "num_embeddings": ("linear", "expected num_embeddings='piecewise', got num_embeddings='linear'"),
    "preset": (
        replace(PRESETS["table"]["default"], scaling="standard"),
        "expected scaling='quantile', got scaling='standard'",
    ),
    "column_types": ({"x0": "category"}, "expected 'x0' as 'number', got 'category'"),
    "ordinal_categories": ({"x2": ["red", "green", "blue"]}, "expected 'x2' as 'category', got 'ordinal'"),
}


@pytest.mark.parametrize("name", INVALID)
def test_a_warm_start_rejects_parameters_that_would_change_the_model(name: str) -> None:
    model = small(TableTransformerClassifier, warm_start=True, epochs=1).fit(X, Y)
    value, message = INVALID[name]
    with pytest.raises(ConfigError, match=message):
        model.set_params(**{name: value}).fit(X, Y)
    assert model.set_params(warm_start=False).fit(X, Y).score(X, Y) > 0


@pytest.mark.parametrize("estimator_class", ALL)
def test_training_parameters_may_change_on_a_warm_start(estimator_class: type) -> None:
    model = small(estimator_class, warm_start=True, epochs=1).fit(X, Y)
    changes = {"lr": 1e-2, "epochs": 2, "batch_size": 32, "patience": 3, "column_types": {"x0": "number"}}
    assert model.set_params(**changes).fit(X, Y).n_iter_ == 2
