"""What a warm start goes on with."""

from typing import Any

import pytest

from softlook.base.errors import ConfigError
from softlook.tabular import TableTransformerClassifier
from tests.tabular.estimators import ALL, mixed_table, small

X, Y = mixed_table()

WRONG: dict[str, tuple[Any, str]] = {
    "dim": (32, "with dim=16; dim=32 came"),
    "heads": (4, "with heads=2; heads=4 came"),
    "dropout": (0.5, "with dropout=0.0; dropout=0.5 came"),
    "attention_dropout": (0.5, "with attention_dropout=0.2; attention_dropout=0.5 came"),
    "num_embeddings": ("linear", "with number_tokens='piecewise'; number_tokens='linear' came"),
    "preset": ("paper", "with model='TableTransformer'; model='FTTransformer' came"),
    "column_types": ({"x0": "category"}, "with 'x0' as 'number'; 'category' came"),
    "ordinal_categories": ({"x2": ["red", "green", "blue"]}, "with 'x2' as 'category'; 'ordinal' came"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_a_model_that_goes_on_cannot_heed_is_refused(name: str) -> None:
    model = small(TableTransformerClassifier, warm_start=True, epochs=1).fit(X, Y)
    value, message = WRONG[name]
    with pytest.raises(ConfigError, match=message):
        model.set_params(**{name: value}).fit(X, Y)
    assert model.set_params(warm_start=False).fit(X, Y).score(X, Y) > 0


@pytest.mark.parametrize("kind", ALL)
def test_how_it_learns_may_change_on_the_way(kind: type) -> None:
    model = small(kind, warm_start=True, epochs=1).fit(X, Y)
    told = {"lr": 1e-2, "epochs": 2, "batch_size": 32, "patience": 3, "column_types": {"x0": "number"}}
    assert model.set_params(**told).fit(X, Y).n_iter_ == 2
