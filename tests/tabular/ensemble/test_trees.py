"""Trees as tensors predict what scikit-learn's do."""

import time
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from softlook.tabular.ensemble import tree_fit
from softlook.tabular.ensemble.tree_fit import TreeSettings, category_ranks, fit_trees, to_nodes
from softlook.tabular.ensemble.trees import TreesModel, tree_features
from softlook.tabular.preprocessing.rows import TableTensors
from softlook.tabular.preprocessing.target import ClassTarget, RegressionTarget

RNG = np.random.RandomState(0)
NUMBERS = np.where(RNG.rand(300, 2) < 0.1, np.nan, RNG.randn(300, 2)).astype(np.float32)
CODES = RNG.randint(1, 9, (300, 2))
CLASSES = (np.nan_to_num(NUMBERS[:, 0]) > 0).astype(int) + (CODES[:, 0] % 3 == 1)


def rows(targets: np.ndarray) -> TableTensors:
    numbers, codes, y = (torch.from_numpy(array) for array in (NUMBERS, CODES, targets))
    return TableTensors(numbers, codes, y, torch.ones(len(targets)))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_scores_are_those_of_scikit_learn(n_classes: int) -> None:
    table = rows(CLASSES.clip(max=n_classes - 1))
    features = tree_features(table, *category_ranks(table.categories)).numpy()
    mask: Any = [True, True, False, False]
    model = HistGradientBoostingClassifier(max_iter=20, categorical_features=mask, min_samples_leaf=3)
    model.fit(features, table.targets)
    trees = [iteration[0] for iteration in model._predictors]  # pyright: ignore[reportAttributeAccessIssue]
    nodes, depth = to_nodes(trees, np.arange(4))
    scores = nodes.leaves(torch.from_numpy(features), depth).numpy().sum(1)
    scores += model._baseline_prediction[0, 0]  # pyright: ignore[reportAttributeAccessIssue]
    expected = model.decision_function(features)
    np.testing.assert_allclose(scores, expected if n_classes == 2 else expected[:, 0], rtol=1e-12, atol=1e-12)


def test_a_regression_is_that_of_scikit_learn() -> None:
    features = NUMBERS.astype(np.float64)
    y = np.nan_to_num(NUMBERS[:, 0]) + NUMBERS[:, 1] ** 2 > 0.3
    model = HistGradientBoostingRegressor(max_iter=30).fit(features, y)
    trees = [iteration[0] for iteration in model._predictors]  # pyright: ignore[reportAttributeAccessIssue]
    nodes, depth = to_nodes(trees, np.arange(2))
    predicted = nodes.leaves(torch.from_numpy(features), depth).numpy().sum(1) + model._baseline_prediction
    np.testing.assert_allclose(predicted.ravel(), model.predict(features), rtol=1e-12, atol=1e-12)


def test_restored_trees_predict_the_same() -> None:
    table, target = rows(CLASSES), ClassTarget(np.arange(3))
    parts = table.take(slice(200)), table.take(slice(200, 300))
    model = fit_trees(*parts, target, settings=TreeSettings(), seed=0, deadline=time.monotonic() + 60)
    restored = TreesModel.from_state(*model.state())
    assert torch.equal(restored.predict(table), model.predict(table))
    assert float((model.predict(parts[1]).argmax(1) == parts[1].targets).double().mean()) > 0.8


def test_unknown_and_rare_categories_are_missing() -> None:
    ranks, offsets = category_ranks(torch.arange(1, 300)[:, None], torch.tensor([[305]]))
    assert offsets.tolist() == [0]
    assert ranks[0].isnan() and ranks[305].isnan()
    assert int(ranks[~ranks.isnan()].max()) == 253


def test_a_class_without_training_rows_has_probability_0() -> None:
    table, target = rows(CLASSES), ClassTarget(np.arange(4))
    model = fit_trees(table, table, target, settings=TreeSettings(), seed=0, deadline=time.monotonic())
    assert float(model.predict(table)[:, 3].max()) == 0


def test_several_targets_have_their_own_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_fit, "MAX_TREES", 60)
    y = np.stack([np.nan_to_num(NUMBERS[:, 0]), CODES[:, 1] * 1.0], 1).astype(np.float32)
    table, target = rows(y), RegressionTarget.fit(y)
    settings = TreeSettings(learning_rate=0.3, max_features=1.0)
    model = fit_trees(table, table, target, settings=settings, seed=0, deadline=np.inf)
    assert len(model.counts) == 2
    assert float((model.predict(table) - torch.from_numpy(y)).square().mean()) < 0.2
