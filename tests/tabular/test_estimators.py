"""What the four estimators promise beyond what scikit-learn checks."""

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
    FTTransformerRegressor,
    Hyperparameters,
    TableTransformerClassifier,
    TableTransformerRegressor,
    TabTransformerClassifier,
    TabTransformerRegressor,
)
from softlook.tabular.presets import PRESETS
from softlook.tabular.training.loop import Epoch, TimeBudget
from softlook.tabular.training.trainer import TableTrainer
from tests.tabular.estimators import ALL, CLASSIFIERS, REGRESSORS, mixed_table, small

X, Y = mixed_table()
TABLE = pd.DataFrame({"a": X[:, 0].astype(float), "b": X[:, 1].astype(float), "colour": X[:, 2].astype(str)})


def predict(model: Any, X: Any) -> np.ndarray:
    return model.predict_proba(X) if hasattr(model, "predict_proba") else model.predict(X)


@pytest.mark.parametrize("kind", ALL)
def test_the_same_table_gives_the_same_bits_whatever_it_came_in(kind: type) -> None:
    tables = [TABLE, pl.from_pandas(TABLE), pa.Table.from_pandas(TABLE), X, X.tolist()]
    first, *others = [answer(small(kind).fit(table, Y), table) for table in tables]
    for other in others:
        np.testing.assert_array_equal(first, other)


@pytest.mark.parametrize("kind", ALL)
def test_the_same_random_state_gives_the_same_bits_and_another_does_not(kind: type) -> None:
    one, same, other = (answer(small(kind, random_state=state).fit(X, Y), X) for state in (3, 3, 4))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


def test_fitting_and_answering_leave_the_dice_of_others_alone() -> None:
    before = torch.get_rng_state()
    small(TableTransformerClassifier).fit(X, Y).predict(X)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("kind", CLASSIFIERS)
@pytest.mark.parametrize("labels", [["no", "yes"], [False, True], [-1, 7], [0.0, 1.0]], ids=str)
def test_classes_are_called_what_they_were_called(kind: type, labels: list[Any]) -> None:
    model = small(kind).fit(X, np.array(labels)[Y.astype(int)])
    assert model.classes_.tolist() == labels
    assert set(model.predict(X)) <= set(labels)
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1)


@pytest.mark.parametrize("kind", REGRESSORS)
def test_several_targets_have_a_column_each(kind: type) -> None:
    y = np.stack([X[:, 0].astype(float), Y * 100.0, np.full(len(Y), 7.0)], 1)
    said = small(kind, epochs=30).fit(X, y).predict(X)
    assert said.shape == y.shape
    assert (said[:, 2] == 7).all(), "a constant among them stays one"
    assert 0 < said[:, 1].mean() < 100


@pytest.mark.parametrize("kind", [TableTransformerClassifier, TabTransformerClassifier])
def test_it_learns_what_depends_on_a_number_and_a_word(kind: type) -> None:
    model = kind(dim=16, heads=2, depth=2, lr=5e-3, patience=10, random_state=0).fit(*mixed_table(400))
    assert model.score(*mixed_table(200, seed=1)) > 0.9


def test_a_class_that_weighs_more_is_said_more_often() -> None:
    dice = np.random.RandomState(0)
    noise, y = dice.randn(200, 2), dice.randint(2, size=200)
    shares = [
        (small(TableTransformerClassifier, epochs=5, class_weight=weight).fit(noise, y).predict(noise) == 1).mean()
        for weight in ({0: 50, 1: 1}, {0: 1, 1: 50})
    ]
    assert shares == [0, 1]


def test_balanced_is_by_how_often_a_class_comes() -> None:
    model, y = small(TableTransformerClassifier, class_weight="balanced"), np.array([0] * 30 + [1] * 10)
    model.fit(np.zeros((40, 1)), y)
    np.testing.assert_allclose(model._class_weights(y), [40 / 60, 40 / 20])


def test_a_row_that_weighs_nothing_is_as_if_it_were_not_there() -> None:
    strange = X.copy()
    strange[::2, 0] = 1e6
    weight = np.arange(len(X)) % 2
    with_them = small(TableTransformerClassifier).fit(strange, Y, sample_weight=weight)
    without = small(TableTransformerClassifier).fit(X[1::2], Y[1::2])
    np.testing.assert_array_equal(with_them.predict_proba(X), without.predict_proba(X))


def test_rows_to_stop_by_can_be_given() -> None:
    given = small(TableTransformerRegressor).fit(X, Y, eval_set=mixed_table(30, seed=1))
    assert "val_loss" in given.history_[-1]
    with pytest.raises(ValueError, match="features"):
        small(TableTransformerRegressor).fit(X, Y, eval_set=(X[:, :2], Y))
    with pytest.raises(DataError, match="'maybe' is none of the 2 classes"):
        small(TableTransformerClassifier).fit(X, np.where(Y, "yes", "no"), eval_set=(X[:2], ["yes", "maybe"]))


def test_of_few_rows_none_are_held_out() -> None:
    assert "val_loss" not in small(TableTransformerRegressor).fit(X[:40], Y[:40]).history_[-1]
    assert "val_loss" in small(TableTransformerRegressor).fit(X, Y).history_[-1]


def test_a_warm_start_goes_on_where_it_was() -> None:
    model = small(TableTransformerClassifier, warm_start=True, epochs=15).fit(X, Y)
    first, reading = model.history_[0]["loss"], model.preprocessor_
    model.fit(X, Y)
    assert model.history_[0]["loss"] < first
    assert model.preprocessor_ is reading
    cold = small(TableTransformerClassifier, epochs=15).fit(X, Y)
    assert cold.fit(X, Y).history_[0]["loss"] == first


def test_a_time_limit_is_kept() -> None:
    began = time.monotonic()
    model = TableTransformerRegressor(dim=16, heads=2, time_limit=0.5, patience=10_000).fit(X, Y)
    assert time.monotonic() - began < 5
    assert model.n_iter_ == len(model.history_) >= 1


@pytest.mark.parametrize("kind", ALL)
def test_missing_numbers_are_told_from_middling_ones(kind: type) -> None:
    numbers = np.random.RandomState(0).randn(300, 2)
    y = np.arange(300) % 2
    numbers[y == 1, 0] = np.nan
    model = small(kind, epochs=60, lr=1e-2).fit(numbers, y)
    assert model.score(numbers, y) > 0.9


@pytest.mark.parametrize("preset", ["ours", "paper"])
def test_every_recipe_builds_the_model_it_names(preset: str) -> None:
    targets = {"ours": TableTransformer, "paper": FTTransformer}[preset]
    assert type(small(TableTransformerClassifier, preset=preset).fit(X, Y).model_) is targets
    assert type(small(TabTransformerRegressor, preset=preset).fit(X, Y).model_) is TabTransformer


def test_the_papers_recipe_is_the_papers() -> None:
    preset = PRESETS["ft"]["paper"]
    model = FTTransformerRegressor(epochs=1, random_state=0).fit(np.random.randn(60, 8), np.arange(60))
    assert sum(weights.numel() for weights in model.model_.parameters()) == 894_913  # as its authors' package has
    assert (preset.lr, preset.weight_decay, preset.patience, preset.epochs) == (1e-4, 1e-5, 16, None)


def test_a_recipe_of_ones_own_is_taken_as_it_is() -> None:
    own = Hyperparameters(model="FTTransformer", dim=8, heads=2, depth=1, epochs=2)
    model = TableTransformerClassifier(preset=own, depth=2).fit(X, Y)
    assert (model.hyperparameters_.dim, model.hyperparameters_.depth, model.n_iter_) == (8, 2, 2)


def test_numbers_alone_go_through_plain_layers_in_a_tab_transformer() -> None:
    model = small(TabTransformerRegressor).fit(X[:, :2].astype(float), Y)
    assert len(model.model_.blocks) == 0


def test_what_failed_to_learn_is_not_taken_for_fitted() -> None:
    model = small(TableTransformerRegressor).fit(X, Y)
    with pytest.raises(TrainingError, match="the loss became"):
        model.set_params(lr=1e30, epochs=50).fit(X, Y)
    with pytest.raises(ValueError, match="not fitted"):
        model.predict(X)


@pytest.mark.cuda
@pytest.mark.parametrize("kind", ALL)
def test_what_was_learned_on_a_gpu_answers_on_a_cpu(kind: type) -> None:
    model = small(kind, device="cuda").fit(X, Y)
    again = pickle.loads(pickle.dumps(model)).set_params(device="cpu")
    np.testing.assert_allclose(answer(again, X), answer(model, X), atol=1e-3)


WRONG = {
    "preset": ("theirs", "recipe is one of ours, paper"),
    "dim": (0, "dim is a whole number from 1 up; 0 came"),
    "heads": (3, "3 heads cannot share a width of 16"),
    "dropout": (1.0, "dropout is a share"),
    "lr": (-1.0, "lr is a number above 0"),
    "weight_decay": ("much", "weight_decay is a number from 0 up"),
    "scaling": ("log", "scaling is one of quantile, standard, none"),
    "early_stopping_metric": ("luck", "watch is one of loss, score"),
    "validation_fraction": (1.0, "validation_share is a share"),
    "time_limit": (0, "time_limit is a number of seconds"),
    "n_jobs": (0, "n_jobs is a number of cores"),
    "num_embeddings": ("cubic", "number_tokens is one of piecewise, periodic, linear"),
    "class_weight": ("heavy", "class_weight is 'balanced'"),
    "column_types": ({"x9": "number"}, "x9"),
    "device": ("abacus", "abacus"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_parameter_that_makes_no_sense_is_named_when_fitting(name: str) -> None:
    value, words = WRONG[name]
    with pytest.raises(ConfigError, match=words):
        small(TableTransformerClassifier, **{name: value}).fit(X, Y)


def test_numbers_may_be_numpys_as_searches_give_them() -> None:
    told = {
        "validation_fraction": np.float32(0.2),
        "n_jobs": np.int64(1),
        "lr": np.float32(1e-3),
        "epochs": np.int64(2),
    }
    assert small(TableTransformerClassifier, time_limit=np.float32(60), **told).fit(X, Y).n_iter_ == 2


@pytest.mark.parametrize("name", ["classes_", "columns_"])
def test_what_is_not_learned_yet_is_not_there_and_it_is_said_why(name: str) -> None:
    model = small(TableTransformerClassifier)
    assert not hasattr(model, name)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        getattr(model, name)


@pytest.fixture
def double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("kind", ALL)
def test_it_learns_where_torch_is_set_to_double_precision(kind: type) -> None:
    assert np.isfinite(answer(small(kind).fit(TABLE, Y), TABLE)).all()
    assert np.isfinite(answer(small(kind).pretrain(TABLE, epochs=1).fit(TABLE, Y), TABLE)).all()


def test_members_and_bent_tokens_are_not_the_papers() -> None:
    with pytest.raises(ConfigError, match="They go with recipe='ours'"):
        small(TableTransformerClassifier, preset="paper", n_members=4).fit(X, Y)


def test_names_and_columns_are_kept() -> None:
    model = small(TableTransformerClassifier).fit(TABLE, Y)
    assert model.feature_names_in_.tolist() == ["a", "b", "colour"]
    assert model.n_features_in_ == 3
    assert model.encoder_.column_types == {"a": "number", "b": "number", "colour": "category"}


def test_so_many_cores_are_used_and_given_back() -> None:
    before, seen = torch.get_num_threads(), list[int]()

    def train(learner: TableTrainer, limits: TimeBudget) -> list[Epoch]:
        seen.append(torch.get_num_threads())
        return learner.train(limits, lambda epoch: None)

    model = small(TableTransformerClassifier, n_jobs=before + 1, epochs=1)
    model._fit(X, Y, None, None, learn)
    model.predict(X)
    assert seen == [before + 1] and torch.get_num_threads() == before


def test_progress_is_said_where_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    small(TableTransformerClassifier).fit(TABLE, Y)
    assert capsys.readouterr().err == ""
    small(TableTransformerClassifier, verbose=True, epochs=20).fit(TABLE, Y)
    said = capsys.readouterr().err
    assert "colour: category, 3 values" in said
    assert "epoch 20: loss 0." in said and "held out 0." in said
