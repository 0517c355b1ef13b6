"""What each column is to a model, within a few seconds."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from softlook.tabular import FTTransformerClassifier, TabTransformerRegressor, weighing
from softlook.tabular.estimator import TableEstimator
from softlook.tabular.rows import Rows
from softlook.tabular.weighing import Weighed, weighed

DICE = np.random.default_rng(0)
NUMBERS = DICE.normal(size=(400, 4)).astype(np.float32)
NUMBERS[:, 3] = 1.0
"""Only the second says something, and the last is always the same."""
SMALL = {"dim": 16, "depth": 1, "heads": 2, "epochs": 30, "device": "cpu", "random_state": 0}


def rows_of(model: TableEstimator, X: np.ndarray, y: np.ndarray) -> Rows:
    return replace(model.reading_.read(X), wanted=torch.from_numpy(model.targets_.encode(y)))


@pytest.fixture(scope="module")
def model() -> TableEstimator:
    return FTTransformerClassifier(members=1, **SMALL).fit(NUMBERS, NUMBERS[:, 1] > 0)


@pytest.fixture(scope="module")
def found(model: TableEstimator) -> Weighed:
    return weighed(model, rows_of(model, NUMBERS, NUMBERS[:, 1] > 0), seed=0)


def test_the_column_that_says_something_comes_first(found: Weighed) -> None:
    assert found.order()[0] == 1
    assert found.permutation[1] > 0.3
    assert np.abs(found.permutation[[0, 2]]).max() < 0.1


def test_shuffling_a_column_that_never_changes_costs_nothing(found: Weighed) -> None:
    assert found.permutation[3] == 0.0


def test_attention_is_that_of_the_estimator(model: TableEstimator, found: Weighed) -> None:
    assert found.rows == len(NUMBERS)
    np.testing.assert_allclose(found.attention, model.attention_importance(NUMBERS), rtol=1e-4)


def test_the_same_seed_gives_the_same_numbers(model: TableEstimator, found: Weighed) -> None:
    again = weighed(model, rows_of(model, NUMBERS, NUMBERS[:, 1] > 0), seed=0)
    assert (again.permutation == found.permutation).all()


def test_where_all_would_take_too_long_fewer_columns_are_shuffled_and_those_come_first(
    model: TableEstimator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weighing, "PRODUCTS", 2.5 * 256 * weighing._cost_of_a_row(model))
    some = weighed(model, rows_of(model, NUMBERS, NUMBERS[:, 1] > 0), seed=0)
    tried = ~np.isnan(some.permutation)
    assert some.rows == 256 and tried.sum() == 2
    assert some.attention[tried].min() >= some.attention[~tried].max()
    assert tried[some.order()[:2]].all()


def test_what_no_block_looks_at_is_weighed_by_shuffling_alone() -> None:
    y = NUMBERS[:, 1] * 3
    model = TabTransformerRegressor(**SMALL).fit(NUMBERS, y)
    found = weighed(model, rows_of(model, NUMBERS, y), seed=0)
    assert np.isnan(found.attention).all() and np.isnan(found.correlation)
    assert found.order()[0] == 1 and found.permutation[1] > 1
