"""Quantile regression."""

from pathlib import Path

import numpy as np
import pytest

from softlook.base.errors import ConfigError
from softlook.tabular import TableTransformerRegressor, load
from tests.tabular.estimators import small

QUANTILES = [0.1, 0.5, 0.9]
RNG = np.random.RandomState(0)
X = RNG.rand(600, 2)
Y = X[:, 0] * RNG.randn(600)  # the spread grows with the first column


@pytest.fixture(scope="module")
def model() -> TableTransformerRegressor:
    params = {"ensemble": "auto", "n_cv": 2, "depth": 1, "epochs": 20, "lr": 1e-2}
    return small(TableTransformerRegressor, quantiles=QUANTILES, **params).fit(X, Y)


def test_quantiles_are_the_last_dimension_and_ascend(model: TableTransformerRegressor) -> None:
    predicted = model.predict(X)
    assert predicted.shape == (600, 3)
    assert (np.diff(predicted) >= 0).all()


def test_about_a_quantiles_level_of_the_targets_is_below_it(model: TableTransformerRegressor) -> None:
    fraction = (Y[:, None] <= model.predict(X)).mean(0)
    np.testing.assert_allclose(fraction, QUANTILES, atol=0.07)


def test_intervals_are_wider_where_targets_vary_more(model: TableTransformerRegressor) -> None:
    low, _, high = model.predict([[0.1, 0.5], [0.9, 0.5]]).T
    assert high[1] - low[1] > 2 * (high[0] - low[0])


def test_the_score_is_the_mean_d2_of_the_pinball_losses(model: TableTransformerRegressor) -> None:
    assert 0.05 < model.score(X, Y) < 1


def test_the_ensemble_has_attention_models_and_trees(model: TableTransformerRegressor) -> None:
    assert {entry["kind"] for entry in model.leaderboard_} == {"attention", "trees", "ensemble"}


def test_a_loaded_model_predicts_the_same_quantiles(model: TableTransformerRegressor, tmp_path: Path) -> None:
    loaded = load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert loaded.quantiles == QUANTILES


def test_several_numbers_have_quantiles_each() -> None:
    y = np.stack([Y, 2 * Y + 100], 1)
    model = small(TableTransformerRegressor, quantiles=(0.2, 0.8)).fit(X, y)
    predicted = model.predict(X[:5])
    assert predicted.shape == (5, 2, 2)
    assert (predicted[:, 1] > 90).all()


@pytest.mark.parametrize("quantiles", [0.5, [], [0.9, 0.1], [0.5, 0.5], [0, 0.5], ["0.5"], "0.5"])
def test_other_than_ascending_levels_are_rejected(quantiles: object) -> None:
    with pytest.raises(ConfigError, match="quantiles: expected ascending levels"):
        small(TableTransformerRegressor, quantiles=quantiles).fit(X, Y)


def test_intervals_and_scorers_are_not_for_quantiles(model: TableTransformerRegressor) -> None:
    with pytest.raises(ConfigError, match="requires quantiles=None"):
        model.predict_interval(X)
    with pytest.raises(ConfigError, match="expected 'loss' with quantiles; got 'r2'"):
        small(TableTransformerRegressor, quantiles=QUANTILES, early_stopping_metric="r2").fit(X, Y)
