"""Baselines on the same rows: gradient-boosted trees and linear models."""

import numpy as np
import pytest
import torch

from softlook.tabular import baselines
from softlook.tabular.baselines import fit_baselines
from softlook.tabular.preprocessing.rows import TableTensors
from softlook.tabular.preprocessing.target import ClassTarget, RegressionTarget


def rows(count: int, seed: int, *, classes: int = 0, columns: int = 1) -> TableTensors:
    """Rows whose target depends on a category and a number; some numbers are missing."""
    rng = np.random.default_rng(seed)
    numbers, codes = rng.normal(size=(count, 2)).astype(np.float32), rng.integers(2, 6, (count, 1))
    signal = numbers[:, 0] + (codes[:, 0] == 3) * 2 + rng.normal(size=count) * 0.1
    numbers[rng.random((count, 2)) < 0.05] = np.nan
    targets = np.clip((signal + 1.5).astype(int), 0, classes - 1) if classes else np.stack([signal] * columns, 1)
    dtype = torch.long if classes else torch.float32
    return TableTensors(
        torch.from_numpy(numbers), torch.from_numpy(codes), torch.tensor(targets, dtype=dtype), torch.ones(count)
    )


@pytest.fixture(params=["LightGBM", "HistGradientBoosting"])
def trees(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "LightGBM":
        pytest.importorskip("lightgbm")
    else:
        monkeypatch.setattr(baselines, "find_spec", lambda name: None)
    return request.param


@pytest.mark.parametrize("classes", [2, 4])
def test_classes_are_predicted_by_trees_and_logistic_regression(trees: str, classes: int) -> None:
    splits = [rows(count, seed, classes=classes) for seed, count in enumerate((800, 200, 300))]
    fitted = fit_baselines(*splits, target=ClassTarget(np.arange(classes)), seconds=20, seed=0)
    assert [baseline.name for baseline in fitted] == [trees, "logistic regression"]
    test_targets = splits[2].targets
    assert test_targets is not None
    majority = np.bincount(test_targets.numpy()).max() / 300
    for baseline in fitted:
        assert baseline.scores["accuracy"] > majority + 0.05 and baseline.scores["auc"] > 0.8 and baseline.seconds > 0


@pytest.mark.parametrize("columns", [1, 2])
def test_numbers_are_predicted_by_trees_and_ridge_regression(trees: str, columns: int) -> None:
    splits = [rows(count, seed, columns=columns) for seed, count in enumerate((800, 200, 300))]
    target = RegressionTarget(np.zeros(columns), np.ones(columns), () if columns == 1 else (columns,))
    fitted = fit_baselines(*splits, target=target, seconds=20, seed=0)
    assert [baseline.name for baseline in fitted] == [trees, "ridge regression"]
    assert all(baseline.scores["r2"] > 0.6 for baseline in fitted)


def test_baselines_are_fitted_without_validation_rows(trees: str) -> None:
    fitted = fit_baselines(
        rows(300, 0, classes=2), None, rows(100, 1, classes=2), target=ClassTarget(np.arange(2)), seconds=20, seed=0
    )
    assert all(baseline.scores["accuracy"] > 0.7 for baseline in fitted)


def test_a_class_without_training_rows_has_a_finite_loss(trees: str) -> None:
    train, test = rows(300, 0, classes=2), rows(100, 1, classes=3)
    fitted = fit_baselines(train, rows(100, 2, classes=3), test, target=ClassTarget(np.arange(3)), seconds=20, seed=0)
    assert all(np.isfinite(baseline.scores["log_loss"]) for baseline in fitted)


class Clock:
    """A clock that advances by a second whenever it is read."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 1
        return self.now


def test_trees_stop_at_the_time_limit(trees: str, monkeypatch: pytest.MonkeyPatch) -> None:
    splits, ends = [rows(count, seed) for seed, count in enumerate((800, 200, 100))], list[float]()
    monkeypatch.setattr(baselines, "MAX_TREES", 300)
    monkeypatch.setattr(baselines, "PATIENCE", 1000)
    for seconds in (0.5, 1e9):
        monkeypatch.setattr(baselines, "time", clock := Clock())
        fit_baselines(*splits, target=RegressionTarget(np.zeros(1), np.ones(1), ()), seconds=seconds, seed=0)
        ends.append(clock.now)
    assert ends[0] < ends[1], "a short limit must stop training before the last tree"
