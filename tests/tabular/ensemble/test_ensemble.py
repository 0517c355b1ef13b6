"""Ensembles of estimators."""

from pathlib import Path

import numpy as np
import pytest
import torch

from softlook.base.errors import ConfigError
from softlook.tabular import TableTransformerClassifier, TableTransformerRegressor, load
from softlook.tabular.ensemble.ensemble import TableEnsemble
from tests.tabular.estimators import mixed_table, small

X, Y = mixed_table(120)
QUICK = {"depth": 1, "n_members": 1, "epochs": 2, "batch_size": 64, "n_cv": 2}


@pytest.fixture(scope="module")
def classifier() -> TableTransformerClassifier:
    return small(TableTransformerClassifier, ensemble="auto", **QUICK).fit(X, np.where(Y, "yes", "no"))


@pytest.fixture(scope="module")
def regressor() -> TableTransformerRegressor:
    y = np.stack([X[:, 0].astype(float), Y * 10.0], 1)
    return small(TableTransformerRegressor, ensemble="auto", **QUICK).fit(X, y)


def test_the_leaderboard_names_every_kind_of_model(classifier: TableTransformerClassifier) -> None:
    kinds = {entry["kind"] for entry in classifier.leaderboard_}
    assert kinds == {"attention", "trees", "linear", "ensemble"}
    assert sum(entry["weight"] for entry in classifier.leaderboard_ if entry["kind"] != "ensemble") == pytest.approx(1)


def test_no_single_model_has_a_lower_out_of_fold_loss_than_the_ensemble(classifier: TableTransformerClassifier) -> None:
    losses = {entry["name"]: entry["loss"] for entry in classifier.leaderboard_}
    assert losses["ensemble"] == min(losses.values())


def test_probabilities_sum_to_1(classifier: TableTransformerClassifier) -> None:
    np.testing.assert_allclose(classifier.predict_proba(X).sum(1), 1)
    assert classifier.score(X, np.where(Y, "yes", "no")) > 0.9


def test_predictions_of_a_row_do_not_depend_on_other_rows(classifier: TableTransformerClassifier) -> None:
    np.testing.assert_allclose(classifier.predict_proba(X[:7]), classifier.predict_proba(X)[:7], atol=1e-12)


def test_a_loaded_ensemble_is_bitwise_equal(
    classifier: TableTransformerClassifier, regressor: TableTransformerRegressor, tmp_path: Path
) -> None:
    loaded = load(classifier.save(tmp_path / "classifier"))
    np.testing.assert_array_equal(loaded.predict_proba(X), classifier.predict_proba(X))
    assert loaded.leaderboard_ == classifier.leaderboard_
    np.testing.assert_array_equal(load(regressor.save(tmp_path / "regressor")).predict(X), regressor.predict(X))
    assert {path.suffix for path in (tmp_path / "regressor").iterdir()} == {".json", ".safetensors"}


def test_several_targets_are_predicted_as_columns(regressor: TableTransformerRegressor) -> None:
    predicted = regressor.predict(X)
    assert predicted.shape == (120, 2)
    assert np.corrcoef(predicted[:, 1], Y)[0, 1] > 0.7


def test_attention_models_can_be_the_only_ones() -> None:
    model = small(TableTransformerClassifier, ensemble="attention", **QUICK).fit(X, Y)
    assert {entry["kind"] for entry in model.leaderboard_} == {"attention", "ensemble"}
    assert isinstance(model.ensemble_, TableEnsemble)


def test_few_rows_and_given_models_have_no_ensemble() -> None:
    model = small(TableTransformerClassifier, ensemble="auto", **QUICK)
    assert model.fit(X[:40], Y[:40]).ensemble_ is None
    assert model.set_params(warm_start=True).fit(X, Y).ensemble_ is None


def test_given_validation_rows_determine_the_weights() -> None:
    model = small(TableTransformerClassifier, ensemble="auto", **QUICK).fit(X, Y, eval_set=mixed_table(60, seed=1))
    assert {entry["folds"] for entry in model.leaderboard_} == {1}


def test_a_model_that_is_far_worse_than_others_is_abandoned_after_one_fold() -> None:
    X, y = mixed_table(300)
    model = small(TableTransformerClassifier, ensemble="auto", **QUICK | {"epochs": 1}).fit(X, y)
    (attention,) = [entry for entry in model.leaderboard_ if entry["kind"] == "attention"]
    best = min(entry["loss"] for entry in model.leaderboard_)
    assert attention["loss"] > 1.5 * best
    assert attention["folds"] == 1 and attention["weight"] == 0
    assert model.attention_importance(X).shape == (3,)


def test_an_attention_model_is_trained_however_short_the_time_is() -> None:
    X, y = np.random.RandomState(0).randn(400, 3), np.arange(400) % 100
    model = TableTransformerClassifier(time_limit=0.01, random_state=0).fit(X, y)
    assert "attention" in {entry["kind"] for entry in model.leaderboard_}


@pytest.mark.filterwarnings("ignore:The number of unique classes")
def test_a_class_for_every_row_means_a_single_model() -> None:
    model = small(TableTransformerClassifier, ensemble="auto", **QUICK).fit(X, np.arange(len(X)))
    assert model.ensemble_ is None


def test_an_unknown_ensemble_is_rejected() -> None:
    with pytest.raises(ConfigError, match="ensemble: expected one of auto, attention, single; got 'forest'"):
        small(TableTransformerClassifier, ensemble="forest").fit(X, Y)


def test_the_random_state_determines_the_ensemble(classifier: TableTransformerClassifier) -> None:
    same = small(TableTransformerClassifier, ensemble="auto", **QUICK).fit(X, np.where(Y, "yes", "no"))
    assert torch.equal(torch.from_numpy(same.predict_proba(X)), torch.from_numpy(classifier.predict_proba(X)))
