"""Behaviour of the estimators beyond what scikit-learn checks."""

import pickle
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from sklearn.exceptions import NotFittedError

from softlook.base.errors import ConfigError, DataError, TrainingError
from softlook.models import FTTransformer, TableTransformer, TabTransformer
from softlook.tabular import (
    FTTransformerClassifier,
    FTTransformerRegressor,
    Hyperparameters,
    TableTransformerClassifier,
    TableTransformerRegressor,
    TabTransformerRegressor,
)
from softlook.tabular.presets import PRESETS
from softlook.tabular.training.runtime import Epoch, TimeBudget
from softlook.tabular.training.trainer import TableTrainer
from tests.tabular.estimators import ALL, CLASSIFIERS, REGRESSORS, mixed_table, small

X, Y = mixed_table()
TABLE = pd.DataFrame({"a": X[:, 0].astype(float), "b": X[:, 1].astype(float), "color": X[:, 2].astype(str)})


def predict(model: Any, X: Any) -> np.ndarray:
    return model.predict_proba(X) if hasattr(model, "predict_proba") else model.predict(X)


@pytest.mark.parametrize("estimator_class", ALL)
def test_predictions_are_bitwise_equal_for_every_table_format(estimator_class: type) -> None:
    tables = [TABLE, pl.from_pandas(TABLE), pa.Table.from_pandas(TABLE), X, X.tolist()]
    first, *others = [predict(small(estimator_class).fit(table, Y), table) for table in tables]
    for other in others:
        np.testing.assert_array_equal(first, other)


@pytest.mark.parametrize("estimator_class", ALL)
def test_the_random_state_determines_the_predictions(estimator_class: type) -> None:
    one, same, other = (predict(small(estimator_class, random_state=state).fit(X, Y), X) for state in (3, 3, 4))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


def test_fit_and_predict_leave_the_global_random_state_unchanged() -> None:
    before = torch.get_rng_state()
    small(TableTransformerClassifier).fit(X, Y).predict(X)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("estimator_class", CLASSIFIERS)
@pytest.mark.parametrize("labels", [["no", "yes"], [False, True], [-1, 7], [0.0, 1.0]], ids=str)
def test_predictions_have_the_labels_of_the_training_data(estimator_class: type, labels: list[Any]) -> None:
    model = small(estimator_class).fit(X, np.array(labels)[Y.astype(int)])
    assert model.classes_.tolist() == labels
    assert set(model.predict(X)) <= set(labels)
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1)


@pytest.mark.parametrize("estimator_class", REGRESSORS)
def test_several_targets_are_predicted_as_columns(estimator_class: type) -> None:
    y = np.stack([X[:, 0].astype(float), Y * 100.0, np.full(len(Y), 7.0)], 1)
    predictions = small(estimator_class, epochs=30).fit(X, y).predict(X)
    assert predictions.shape == y.shape
    assert (predictions[:, 2] == 7).all(), "a constant target must stay constant"
    assert 0 < predictions[:, 1].mean() < 100


@pytest.mark.parametrize("estimator_class", CLASSIFIERS)
def test_an_interaction_of_a_number_and_a_category_is_learned(estimator_class: type) -> None:
    model = small(estimator_class, epochs=None, lr=5e-3, patience=10).fit(*mixed_table(400))
    assert model.score(*mixed_table(200, seed=1)) > 0.9


def test_a_class_with_a_larger_weight_is_predicted_more_often() -> None:
    rng = np.random.RandomState(0)
    noise, y = rng.randn(200, 2), rng.randint(2, size=200)
    fractions = [
        (small(TableTransformerClassifier, epochs=5, class_weight=weight).fit(noise, y).predict(noise) == 1).mean()
        for weight in ({0: 50, 1: 1}, {0: 1, 1: 50})
    ]
    assert fractions == [0, 1]


def test_balanced_class_weights_are_inversely_proportional_to_frequencies() -> None:
    model, y = small(TableTransformerClassifier, class_weight="balanced"), np.array([0] * 30 + [1] * 10)
    model.fit(np.zeros((40, 1)), y)
    np.testing.assert_allclose(model._class_weights(y), [40 / 60, 40 / 20])


def test_a_row_of_zero_weight_is_ignored() -> None:
    outliers = X.copy()
    outliers[::2, 0] = 1e6
    weight = np.arange(len(X)) % 2
    weighted = small(TableTransformerClassifier).fit(outliers, Y, sample_weight=weight)
    without = small(TableTransformerClassifier).fit(X[1::2], Y[1::2])
    np.testing.assert_array_equal(weighted.predict_proba(X), without.predict_proba(X))


def test_validation_rows_can_be_given() -> None:
    model = small(TableTransformerRegressor).fit(X, Y, eval_set=mixed_table(30, seed=1))
    assert "val_loss" in model.history_[-1]
    with pytest.raises(ValueError, match="features"):
        small(TableTransformerRegressor).fit(X, Y, eval_set=(X[:, :2], Y))
    with pytest.raises(DataError, match="'maybe' is not one of the 2 classes"):
        small(TableTransformerClassifier).fit(X, np.where(Y, "yes", "no"), eval_set=(X[:2], ["yes", "maybe"]))


def test_there_is_no_validation_split_of_few_rows() -> None:
    assert "val_loss" not in small(TableTransformerRegressor).fit(X[:40], Y[:40]).history_[-1]
    assert "val_loss" in small(TableTransformerRegressor).fit(X, Y).history_[-1]


def test_a_warm_start_continues_with_the_existing_model() -> None:
    model = small(TableTransformerClassifier, warm_start=True, epochs=15).fit(X, Y)
    first, preprocessor = model.history_[0]["loss"], model.preprocessor_
    model.fit(X, Y)
    assert model.history_[0]["loss"] < first
    assert model.preprocessor_ is preprocessor
    cold = small(TableTransformerClassifier, epochs=15).fit(X, Y)
    assert cold.fit(X, Y).history_[0]["loss"] == first


def test_the_time_limit_is_respected() -> None:
    started = time.monotonic()
    model = TableTransformerRegressor(ensemble="single", dim=16, heads=2, time_limit=0.5, patience=10_000).fit(X, Y)
    assert time.monotonic() - started < 5
    assert model.n_iter_ == len(model.history_) >= 1


@pytest.mark.parametrize("estimator_class", ALL)
def test_missing_numbers_are_distinguished_from_average_ones(estimator_class: type) -> None:
    numbers = np.random.RandomState(0).randn(300, 2)
    y = np.arange(300) % 2
    numbers[y == 1, 0] = np.nan
    model = small(estimator_class, epochs=60, lr=1e-2).fit(numbers, y)
    assert model.score(numbers, y) > 0.9


def test_every_estimator_builds_its_model() -> None:
    assert type(small(TableTransformerClassifier).fit(X, Y).model_) is TableTransformer
    assert type(small(FTTransformerClassifier).fit(X, Y).model_) is FTTransformer
    for preset in ("improved", "paper"):
        assert type(small(TabTransformerRegressor, preset=preset).fit(X, Y).model_) is TabTransformer


def test_the_ft_transformer_has_the_size_and_hyperparameters_of_the_paper() -> None:
    preset = PRESETS["ft"]["paper"]
    model = FTTransformerRegressor(epochs=1, random_state=0).fit(np.random.randn(60, 8), np.arange(60))
    assert sum(weights.numel() for weights in model.model_.parameters()) == 894_913  # as in the authors' package
    assert (preset.lr, preset.weight_decay, preset.patience, preset.epochs) == (1e-4, 1e-5, 16, None)


def test_hyperparameters_can_be_the_preset() -> None:
    preset = Hyperparameters(model="FTTransformer", dim=8, heads=2, depth=1, epochs=2)
    model = FTTransformerClassifier(preset=preset, depth=2).fit(X, Y)
    assert (model.hyperparameters_.dim, model.hyperparameters_.depth, model.n_iter_) == (8, 2, 2)


def test_a_preset_for_another_model_is_rejected() -> None:
    with pytest.raises(ConfigError, match="model: expected 'TableTransformer' for this estimator; got 'FTTransformer'"):
        TableTransformerClassifier(preset=Hyperparameters(model="FTTransformer")).fit(X, Y)


def test_a_tab_transformer_of_numbers_alone_has_no_blocks() -> None:
    model = small(TabTransformerRegressor).fit(X[:, :2].astype(float), Y)
    assert len(model.model_.blocks) == 0


def test_a_failed_fit_does_not_count_as_fitted() -> None:
    model = small(TableTransformerRegressor).fit(X, Y)
    with pytest.raises(TrainingError, match="the loss became"):
        model.set_params(lr=1e30, epochs=50).fit(X, Y)
    with pytest.raises(ValueError, match="not fitted"):
        model.predict(X)


@pytest.mark.cuda
@pytest.mark.parametrize("estimator_class", ALL)
def test_a_model_trained_on_a_gpu_predicts_on_a_cpu(estimator_class: type) -> None:
    model = small(estimator_class, device="cuda").fit(X, Y)
    loaded = pickle.loads(pickle.dumps(model)).set_params(device="cpu")
    np.testing.assert_allclose(predict(loaded, X), predict(model, X), atol=1e-3)


INVALID = {
    "preset": ("unknown", "preset: expected 'default', or Hyperparameters; got 'unknown'"),
    "dim": (0, "dim: expected an integer >= 1; got 0"),
    "heads": (3, "dim must be a multiple of heads, got dim=16 and heads=3"),
    "dropout": (1.0, r"dropout: expected a number in \[0, 1\)"),
    "lr": (-1.0, "lr: expected a number > 0"),
    "weight_decay": ("much", "weight_decay: expected a number >= 0"),
    "scaling": ("log", "scaling: expected one of quantile, standard, none"),
    "early_stopping_metric": ("luck", "early_stopping_metric: expected one of loss, score"),
    "validation_fraction": (1.0, r"validation_fraction: expected a number in \[0, 1\)"),
    "time_limit": (0, "time_limit: expected seconds > 0"),
    "n_jobs": (0, "n_jobs: expected a number of threads"),
    "num_embeddings": ("cubic", "num_embeddings: expected one of piecewise, periodic, linear"),
    "class_weight": ("heavy", "class_weight: expected 'balanced'"),
    "column_types": ({"x9": "number"}, "x9"),
    "device": ("abacus", "abacus"),
}


@pytest.mark.parametrize("name", INVALID)
def test_fit_rejects_an_invalid_parameter_by_name(name: str) -> None:
    value, message = INVALID[name]
    with pytest.raises(ConfigError, match=message):
        small(TableTransformerClassifier, **{name: value}).fit(X, Y)


def test_parameters_may_be_numpy_numbers() -> None:
    params = {
        "validation_fraction": np.float32(0.2),
        "n_jobs": np.int64(1),
        "lr": np.float32(1e-3),
        "epochs": np.int64(2),
    }
    assert small(TableTransformerClassifier, time_limit=np.float32(60), **params).fit(X, Y).n_iter_ == 2


@pytest.mark.parametrize("name", ["classes_", "encoder_"])
def test_fitted_attributes_do_not_exist_before_the_fit(name: str) -> None:
    model = small(TableTransformerClassifier)
    assert not hasattr(model, name)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        getattr(model, name)


@pytest.mark.parametrize("estimator_class", ALL)
def test_predict_before_fit_raises_not_fitted_error(estimator_class: type) -> None:
    with pytest.raises(NotFittedError):
        small(estimator_class).predict(X)


@pytest.fixture
def float64_default() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("float64_default")
@pytest.mark.parametrize("estimator_class", ALL)
def test_fit_works_with_a_default_dtype_of_float64(estimator_class: type) -> None:
    assert np.isfinite(predict(small(estimator_class).fit(TABLE, Y), TABLE)).all()
    assert np.isfinite(predict(small(estimator_class).pretrain(TABLE, epochs=1).fit(TABLE, Y), TABLE)).all()


def test_the_papers_models_reject_ensemble_members() -> None:
    preset = Hyperparameters(model="FTTransformer", n_members=4)
    with pytest.raises(ConfigError, match="got n_members=4 .* Use a TableTransformer"):
        small(FTTransformerClassifier, preset=preset).fit(X, Y)


def test_column_names_and_types_are_fitted_attributes() -> None:
    model = small(TableTransformerClassifier).fit(TABLE, Y)
    assert model.feature_names_in_.tolist() == ["a", "b", "color"]
    assert model.n_features_in_ == 3
    assert model.encoder_.column_types == {"a": "number", "b": "number", "color": "category"}


def test_n_jobs_sets_the_number_of_threads_during_the_fit() -> None:
    before, during = torch.get_num_threads(), list[int]()

    def train_loop(trainer: TableTrainer, budget: TimeBudget) -> list[Epoch]:
        during.append(torch.get_num_threads())
        return trainer.train(budget, lambda epoch: None)

    model = small(TableTransformerClassifier, n_jobs=before + 1, epochs=1)
    model._fit(X, Y, None, None, train_loop)
    model.predict(X)
    assert during == [before + 1] and torch.get_num_threads() == before


def test_progress_is_printed_if_verbose(capsys: pytest.CaptureFixture[str]) -> None:
    small(TableTransformerClassifier).fit(TABLE, Y)
    assert capsys.readouterr().err == ""
    small(TableTransformerClassifier, verbose=True, epochs=20).fit(TABLE, Y)
    printed = capsys.readouterr().err
    assert "color: category, 3 values" in printed
    assert "epoch 20: loss 0." in printed and "val_loss 0." in printed
