"""Attention importance and permutation importance of columns."""

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
    FTTransformerClassifier,
    TableTransformerClassifier,
    TableTransformerRegressor,
    TabTransformerClassifier,
    TabTransformerRegressor,
    importance,
)
from softlook.tabular.estimator import TableEstimator
from softlook.tabular.importance import estimate_importances, permutation_losses, rank_correlation
from softlook.tabular.preprocessing.rows import TableTensors
from softlook.tabular.training.autosize import macs_per_row
from tests.tabular.estimators import mixed_table, small

X, Y = mixed_table()
DATES = pd.DataFrame(
    {
        "color": X[:, 2].astype(str),
        "date": pd.date_range("2020-01-01", periods=len(X), freq="17D"),
        "number": X[:, 0].astype(float),
    }
)


def reference_attention_of_cls(model: Any, table: Any) -> np.ndarray:
    """The row of [CLS] in every attention map, computed from queries and keys independently of the code under test."""
    rows, rows_of_cls = model.preprocessor_.transform(table), []

    def record(module: torch.nn.Module, args: tuple[torch.Tensor, ...]) -> None:
        query, key, *_ = args
        weights = (query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5).softmax(-1).mean(1)
        is_last = len(rows_of_cls) == model.hyperparameters_.depth - 1
        own = weights if is_last else weights[:, :1]  # ensemble members may have their own maps
        rows_of_cls.append(own.reshape(len(table), -1, own.shape[-1]).mean(1))

    hooks = [
        part.register_forward_pre_hook(record) for part in model.model_.modules() if isinstance(part, AttentionCore)
    ]
    with torch.no_grad():
        model.model_(rows.numbers, rows.categories)
    for hook in hooks:
        hook.remove()
    return torch.stack(rows_of_cls).mean(0)[:, 1:].numpy()


@pytest.mark.parametrize("estimator_class", [TableTransformerClassifier, FTTransformerClassifier])
def test_rows_are_explained_by_the_attention_of_cls_summed_over_the_features_of_a_column(estimator_class: type) -> None:
    model = small(estimator_class).fit(DATES, Y)
    tokens = reference_attention_of_cls(model, DATES)
    names = [feature.column for feature in model.encoder_.features]
    assert len(names) > 3, "a date has several features"
    expected = [tokens[:, [name == column for name in names]].sum(1) for column in DATES.columns]
    actual = model.explain_rows(DATES)
    np.testing.assert_allclose(actual, np.stack(expected, 1), atol=1e-6)
    np.testing.assert_allclose(model.attention_importance(DATES), actual.mean(0))
    assert (actual.sum(1) < 1).all(), "the rest is the attention of [CLS] to itself"


def test_explanations_do_not_depend_on_the_number_of_rows() -> None:
    model = small(TableTransformerClassifier).fit(X, Y)
    many = np.concatenate([X] * 8)
    np.testing.assert_allclose(model.explain_rows(many)[-len(X) :], model.explain_rows(X), atol=1e-6)


@pytest.mark.parametrize("column", [0, 2])
@pytest.mark.parametrize("estimator_class", [TableTransformerClassifier, FTTransformerClassifier])
def test_the_only_relevant_column_is_the_most_important(column: int, estimator_class: type) -> None:
    numbers = np.random.RandomState(0).randn(400, 4)
    y = numbers[:, column] > 0
    params = {"dim": 32, "heads": 4, "epochs": 60, "lr": 3e-3, "patience": 60}
    model = small(estimator_class, **params).fit(numbers, y)
    importances = model.importances(numbers, y, repeats=2)
    assert importances.names == ("x0", "x1", "x2", "x3")
    assert importances.permutation.argmax() == column
    assert importances.attention.argmax() == column
    assert -1 <= importances.correlation <= 1


def compared(attention: list[float], permutation: list[float], std: float = 0.0) -> FeatureImportances:
    names = tuple(f"x{index}" for index in range(len(attention)))
    spread = np.full(len(attention), std)
    return FeatureImportances(names, np.array(attention), np.array(permutation), spread, rows=10)


def test_columns_that_attention_and_permutation_rank_differently_are_flagged() -> None:
    agreeing = compared([0.1, 0.2, 0.3, 0.4], [0.0, 0.1, 0.5, 0.4])
    assert not agreeing.disagreement.any()
    opposed = compared([0.6, 0.1, 0.2, 0.3], [0.0, 0.7, 0.3, 0.4])
    assert opposed.disagreement.tolist() == [True, True, False, False]
    assert not compared([0.6, 0.1, 0.2, 0.3], [0.01, 0.04, 0.03, 0.02], std=0.1).disagreement.any(), "noise"
    unknown = compared([float("nan"), 0.1, 0.2], [0.5, 0.1, float("nan")])
    assert not unknown.disagreement.any()


def test_importances_are_printed_with_a_mark_at_disagreements() -> None:
    lines = str(compared([0.6, 0.1, 0.2, 0.3], [0.0, 0.7, 0.3, 0.4])).splitlines()
    assert lines[1] == "x1         0.1000       0.7000  !"
    assert lines[2] == "x3         0.3000       0.4000"
    assert [line.split()[0] for line in lines[1:5]] == ["x1", "x3", "x2", "x0"]
    assert lines[-1] == "rank correlation -0.80; ! where the ranks disagree"


def test_attention_maps_hold_the_attention_between_columns() -> None:
    model = small(TableTransformerRegressor, depth=3).fit(DATES, Y)
    maps = model.attention_maps(DATES)
    assert maps.shape == (3, 3)
    assert (maps > 0).all() and (maps.sum(1) < 1).all(), "the rest is the attention to [CLS]"


def test_a_model_of_one_block_has_no_attention_between_columns() -> None:
    model = small(TableTransformerRegressor, depth=1).fit(X, Y)
    assert model.attention_importance(X).shape == (3,)
    with pytest.raises(ConfigError, match="only \\[CLS\\] attends"):
        model.attention_maps(X)


def test_a_tab_transformer_attends_to_categories_only() -> None:
    table = np.column_stack([X, X[::-1, 2]])
    model = small(TabTransformerClassifier).fit(table, Y)
    attention = model.attention_importance(table)
    assert np.isnan(attention).tolist() == [True, True, False, False]
    assert attention[2:].sum() == pytest.approx(1)
    maps = model.attention_maps(table)
    np.testing.assert_allclose(maps[2:, 2:].sum(1), 1, atol=1e-6)
    assert np.isnan(maps[:2]).all() and np.isnan(maps[:, :2]).all()


def test_a_tab_transformer_without_categories_has_no_attention() -> None:
    numbers = X[:, :2].astype(float)
    model = small(TabTransformerClassifier).fit(numbers, Y)
    with pytest.raises(ConfigError, match="this table has none"):
        model.attention_importance(numbers)
    importances = model.importances(numbers, Y)
    assert np.isnan(importances.attention).all() and np.isnan(importances.correlation)
    assert np.isfinite(importances.permutation).all()


def test_permutation_does_not_change_the_given_table() -> None:
    model, table = small(TableTransformerClassifier).fit(DATES, Y), DATES.copy()
    first, again = (model.importances(table, Y, repeats=2, random_state=3) for _ in range(2))
    pd.testing.assert_frame_equal(table, DATES)
    np.testing.assert_array_equal(first.permutation, again.permutation)


def test_constant_values_have_no_rank_correlation() -> None:
    assert np.isnan(rank_correlation(np.ones(3), np.arange(3.0)))
    assert rank_correlation(np.arange(4.0), -np.arange(4.0)) == pytest.approx(-1)


def test_the_loss_is_computed_once_as_a_baseline_and_once_per_column_and_repeat() -> None:
    model = small(TableTransformerClassifier).fit(DATES, Y)
    rows, evaluated = model.preprocessor_.transform(DATES), list[TableTensors]()

    def loss(some: TableTensors) -> float:
        evaluated.append(some)
        return float(len(evaluated))

    generator = torch.Generator().manual_seed(0)
    increase = permutation_losses(rows, model.preprocessor_, [1], loss=loss, generator=generator, repeats=2)
    assert increase.shape == (3, 2) and increase[1].tolist() == [1.0, 2.0] and np.isnan(increase[[0, 2]]).all()
    original, *permuted = evaluated
    own = torch.tensor([feature.column == "date" for feature in model.encoder_.features if feature.is_numeric])
    for some in permuted:
        assert torch.equal(some.categories, original.categories), "other columns must not change"
        assert torch.equal(some.numbers[:, ~own], original.numbers[:, ~own])
        dates = {tuple(row) for row in some.numbers[:, own].tolist()}
        expected = {tuple(row) for row in original.numbers[:, own].tolist()}
        assert dates == expected, "all features of a date must be permuted together"
        assert not torch.equal(some.numbers, original.numbers)


# --- estimates within a few seconds ----------------------------------------------------------------------------------

NUMBERS = np.random.default_rng(0).normal(size=(400, 4)).astype(np.float32)
NUMBERS[:, 3] = 1.0
"""Only the second column is relevant, and the last is constant."""
SMALL: dict[str, Any] = {"dim": 16, "depth": 1, "heads": 2, "epochs": 30, "device": "cpu", "random_state": 0}


def to_rows(model: TableEstimator, X: np.ndarray, y: np.ndarray) -> TableTensors:
    return replace(model.preprocessor_.transform(X), targets=torch.from_numpy(model.target_.encode(y)))


@pytest.fixture(scope="module")
def model() -> TableEstimator:
    return TableTransformerClassifier(ensemble="single", n_members=1, **SMALL).fit(NUMBERS, NUMBERS[:, 1] > 0)


@pytest.fixture(scope="module")
def importances(model: TableEstimator) -> FeatureImportances:
    return estimate_importances(model, to_rows(model, NUMBERS, NUMBERS[:, 1] > 0), seed=0)


def test_the_relevant_column_has_the_highest_rank(importances: FeatureImportances) -> None:
    assert importances.ranking()[0] == 1
    assert importances.permutation[1] > 0.3
    assert np.abs(importances.permutation[[0, 2]]).max() < 0.1


def test_permuting_a_constant_column_does_not_change_the_loss(importances: FeatureImportances) -> None:
    assert importances.permutation[3] == 0.0


def test_attention_equals_that_of_the_estimator(model: TableEstimator, importances: FeatureImportances) -> None:
    assert importances.rows == len(NUMBERS)
    np.testing.assert_allclose(importances.attention, model.attention_importance(NUMBERS), rtol=1e-4)


def test_the_same_seed_gives_the_same_importances(model: TableEstimator, importances: FeatureImportances) -> None:
    again = estimate_importances(model, to_rows(model, NUMBERS, NUMBERS[:, 1] > 0), seed=0)
    assert (again.permutation == importances.permutation).all()


def test_within_a_smaller_budget_only_the_columns_with_the_most_attention_are_permuted(
    model: TableEstimator, monkeypatch: pytest.MonkeyPatch
) -> None:
    hparams, tokens = model.hyperparameters_, 1 + len(model.preprocessor_.token_columns)
    cost_per_row = hparams.n_members * macs_per_row(hparams, tokens)
    monkeypatch.setattr(importance, "CPU_MACS", 2.5 * 256 * cost_per_row)
    some = estimate_importances(model, to_rows(model, NUMBERS, NUMBERS[:, 1] > 0), seed=0)
    permuted = ~np.isnan(some.permutation)
    assert some.rows == 256 and permuted.sum() == 2
    assert some.attention[permuted].min() >= some.attention[~permuted].max()
    assert permuted[some.ranking()[:2]].all()


def test_columns_without_attention_are_ranked_by_permutation_alone() -> None:
    y = NUMBERS[:, 1] * 3
    model = TabTransformerRegressor(preset="improved", **SMALL).fit(NUMBERS, y)
    importances = estimate_importances(model, to_rows(model, NUMBERS, y), seed=0)
    assert np.isnan(importances.attention).all() and np.isnan(importances.correlation)
    assert importances.ranking()[0] == 1 and importances.permutation[1] > 1


def test_zero_repeats_are_rejected(model: TableEstimator) -> None:
    with pytest.raises(ConfigError, match="repeats: expected an integer >= 1; got 0"):
        model.importances(NUMBERS, NUMBERS[:, 1] > 0, repeats=0)
