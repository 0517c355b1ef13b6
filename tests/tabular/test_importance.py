"""What a model looks at, and what it misses when a column is shuffled."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from softlook.base.errors import ConfigError
from softlook.blocks.attention import AttentionCore
from softlook.tabular import (
    FeatureImportances,
    TableTransformerClassifier,
    TableTransformerRegressor,
    TabTransformerClassifier,
    TabTransformerRegressor,
    importance,
)
from softlook.tabular.estimator import TableEstimator
from softlook.tabular.importance import estimate_importances, permutation_losses, rank_correlation
from softlook.tabular.preprocessing.rows import TableTensors
from tests.tabular.estimators import mixed_table, small

X, Y = mixed_table()
DATES = pd.DataFrame(
    {
        "word": X[:, 2].astype(str),
        "when": pd.date_range("2020-01-01", periods=len(X), freq="17D"),
        "number": X[:, 0].astype(float),
    }
)


def by_hand(model: Any, table: Any) -> np.ndarray:
    """[CLS]'s row of every map worked out from queries and keys, with nothing of the tool under test."""
    rows, rows_of_cls = model.preprocessor_.read(table), []

    def early_stopping_metric(module: torch.nn.Module, args: tuple[torch.Tensor, ...]) -> None:
        query, key, *_ = args
        weights = (query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5).softmax(-1).mean(1)
        last = len(rows_of_cls) == model.hyperparameters_.depth - 1
        own = weights if last else weights[:, :1]  # of each member, where each has a map of its own
        rows_of_cls.append(own.reshape(len(table), -1, own.shape[-1]).mean(1))

    hooks = [
        part.register_forward_pre_hook(early_stopping_metric)
        for part in model.model_.modules()
        if isinstance(part, AttentionCore)
    ]
    with torch.no_grad():
        model.model_(rows.numbers, rows.categories)
    for hook in hooks:
        hook.remove()
    return torch.stack(rows_of_cls).mean(0)[:, 1:].numpy()


@pytest.mark.parametrize("preset", ["ours", "paper"])
def test_rows_are_explained_by_what_cls_looks_at_and_slots_of_a_column_are_added_up(preset: str) -> None:
    model = small(TableTransformerClassifier, preset=preset).fit(DATES, Y)
    tokens, names = by_hand(model, DATES), [slot.column for slot in model.encoder_.features]
    assert len(names) > 3, "a date has several slots"
    targets = [tokens[:, [name == column for name in names]].sum(1) for column in DATES.columns]
    found = model.explain_rows(DATES)
    np.testing.assert_allclose(found, np.stack(targets, 1), atol=1e-6)
    np.testing.assert_allclose(model.attention_importance(DATES), found.mean(0))
    assert (found.sum(1) < 1).all(), "the rest is what [CLS] gives itself"


def test_many_rows_are_explained_as_a_few_are() -> None:
    model = small(TableTransformerClassifier).fit(X, Y)
    many = np.concatenate([X] * 8)
    np.testing.assert_allclose(model.explain_rows(many)[-len(X) :], model.explain_rows(X), atol=1e-6)


@pytest.mark.parametrize("column", [0, 2])
@pytest.mark.parametrize("preset", ["ours", "paper"])
def test_the_one_column_that_matters_comes_first(column: int, preset: str) -> None:
    numbers = np.random.RandomState(0).randn(400, 4)
    y = numbers[:, column] > 0
    told = {"dim": 32, "heads": 4, "epochs": 60, "lr": 3e-3, "patience": 60}
    model = small(TableTransformerClassifier, preset=preset, **told).fit(numbers, y)
    found = model.importances(numbers, y, repeats=2)
    assert found.names == ("x0", "x1", "x2", "x3")
    assert found.permutation.argmax() == column
    assert found.attention.argmax() == column
    assert -1 <= found.correlation <= 1


def test_a_map_says_how_much_a_column_looks_at_another() -> None:
    model = small(TableTransformerRegressor, depth=3).fit(DATES, Y)
    found = model.attention_maps(DATES)
    assert found.shape == (3, 3)
    assert (found > 0).all() and (found.sum(1) < 1).all(), "what is left is given to [CLS]"


def test_with_one_block_only_cls_looks() -> None:
    model = small(TableTransformerRegressor, depth=1).fit(X, Y)
    assert model.attention_importance(X).shape == (3,)
    with pytest.raises(ConfigError, match="only \\[CLS\\] looks"):
        model.attention_maps(X)


def test_a_tab_transformer_looks_at_categories_alone() -> None:
    words = np.column_stack([X, X[::-1, 2]])
    model = small(TabTransformerClassifier).fit(words, Y)
    found = model.attention_importance(words)
    assert np.isnan(found).tolist() == [True, True, False, False]
    assert found[2:].sum() == pytest.approx(1)
    maps = model.attention_maps(words)
    np.testing.assert_allclose(maps[2:, 2:].sum(1), 1, atol=1e-6)
    assert np.isnan(maps[:2]).all() and np.isnan(maps[:, :2]).all()


def test_without_categories_a_tab_transformer_has_nothing_to_look_at() -> None:
    numbers = X[:, :2].astype(float)
    model = small(TabTransformerClassifier).fit(numbers, Y)
    with pytest.raises(ConfigError, match="this table has none"):
        model.attention_importance(numbers)
    found = model.importances(numbers, Y)
    assert np.isnan(found.attention).all() and np.isnan(found.correlation)
    assert np.isfinite(found.permutation).all()


def test_shuffling_leaves_the_rows_that_came_alone() -> None:
    model, table = small(TableTransformerClassifier).fit(DATES, Y), DATES.copy()
    first, again = (model.importances(table, Y, repeats=2, random_state=3) for _ in range(2))
    pd.testing.assert_frame_equal(table, DATES)
    np.testing.assert_array_equal(first.permutation, again.permutation)


def test_ranks_that_say_nothing_have_no_correlation() -> None:
    assert np.isnan(rank_correlation(np.ones(3), np.arange(3.0)))
    assert rank_correlation(np.arange(4.0), -np.arange(4.0)) == pytest.approx(-1)


def test_a_loss_is_worked_out_once_as_it_is_and_once_for_each_shuffle_of_each_column_asked_for() -> None:
    model = small(TableTransformerClassifier).fit(DATES, Y)
    rows, asked = model.preprocessor_.read(DATES), list[TableTensors]()

    def loss(some: TableTensors) -> float:
        asked.append(some)
        return float(len(asked))

    found = permutation_losses(
        rows, model.preprocessor_, [1], loss=loss, dice=torch.Generator().manual_seed(0), repeats=2
    )
    assert found.shape == (3, 2) and found[1].tolist() == [1.0, 2.0] and np.isnan(found[[0, 2]]).all()
    whole, *mixed = asked
    own = torch.tensor([slot.column == "when" for slot in model.encoder_.features if slot.numeric])
    for some in mixed:
        assert torch.equal(some.categories, whole.categories), "words are those of their rows"
        assert torch.equal(some.numbers[:, ~own], whole.numbers[:, ~own])
        dealt = {tuple(row) for row in some.numbers[:, own].tolist()}
        assert dealt == {tuple(row) for row in whole.numbers[:, own].tolist()}, "what a date has told stays together"
        assert not torch.equal(some.numbers, whole.numbers)


# --- within a few seconds -------------------------------------------------------------------------------------------

DICE = np.random.default_rng(0)
NUMBERS = DICE.normal(size=(400, 4)).astype(np.float32)
NUMBERS[:, 3] = 1.0
"""Only the second says something, and the last is always the same."""
SMALL = {"dim": 16, "depth": 1, "heads": 2, "epochs": 30, "device": "cpu", "random_state": 0}


def read_rows(model: TableEstimator, X: np.ndarray, y: np.ndarray) -> TableTensors:
    return replace(model.preprocessor_.read(X), targets=torch.from_numpy(model.target_.encode(y)))


@pytest.fixture(scope="module")
def model() -> TableEstimator:
    return TableTransformerClassifier(n_members=1, **SMALL).fit(NUMBERS, NUMBERS[:, 1] > 0)


@pytest.fixture(scope="module")
def found(model: TableEstimator) -> FeatureImportances:
    return estimate_importances(model, read_rows(model, NUMBERS, NUMBERS[:, 1] > 0), seed=0)


def test_the_column_that_says_something_comes_first(found: FeatureImportances) -> None:
    assert found.ranking()[0] == 1
    assert found.permutation[1] > 0.3
    assert np.abs(found.permutation[[0, 2]]).max() < 0.1


def test_shuffling_a_column_that_never_changes_costs_nothing(found: FeatureImportances) -> None:
    assert found.permutation[3] == 0.0


def test_attention_is_that_of_the_estimator(model: TableEstimator, found: FeatureImportances) -> None:
    assert found.rows == len(NUMBERS)
    np.testing.assert_allclose(found.attention, model.attention_importance(NUMBERS), rtol=1e-4)


def test_the_same_seed_gives_the_same_numbers(model: TableEstimator, found: FeatureImportances) -> None:
    again = estimate_importances(model, read_rows(model, NUMBERS, NUMBERS[:, 1] > 0), seed=0)
    assert (again.permutation == found.permutation).all()


def test_where_all_would_take_too_long_fewer_columns_are_shuffled_and_those_come_first(
    model: TableEstimator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importance, "PRODUCTS", 2.5 * 256 * importance._cost_of_a_row(model))
    some = estimate_importances(model, read_rows(model, NUMBERS, NUMBERS[:, 1] > 0), seed=0)
    tried = ~np.isnan(some.permutation)
    assert some.rows == 256 and tried.sum() == 2
    assert some.attention[tried].min() >= some.attention[~tried].max()
    assert tried[some.ranking()[:2]].all()


def test_what_no_block_looks_at_is_weighed_by_shuffling_alone() -> None:
    y = NUMBERS[:, 1] * 3
    model = TabTransformerRegressor(**SMALL).fit(NUMBERS, y)
    found = estimate_importances(model, read_rows(model, NUMBERS, y), seed=0)
    assert np.isnan(found.attention).all() and np.isnan(found.correlation)
    assert found.ranking()[0] == 1 and found.permutation[1] > 1


def test_shuffling_never_is_refused(model: TableEstimator) -> None:
    with pytest.raises(ConfigError, match="repeats is a whole number from 1 up; 0 came"):
        model.importances(NUMBERS, NUMBERS[:, 1] > 0, repeats=0)
