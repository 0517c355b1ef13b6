"""Metrics of predictions."""

import numpy as np
import pytest

from softlook.tabular.preprocessing.target import ClassTarget, RegressionTarget
from softlook.tabular.training.metrics import compute_metrics


def test_classification_metrics_are_those_of_scikit_learn() -> None:
    target = ClassTarget(np.array(["a", "b", "c"]))
    predictions = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.4, 0.3], [0.0, 0.0, 1.0]])
    metrics = compute_metrics(target, predictions, np.array([0, 1, 2, 2]))
    assert metrics["accuracy"] == 0.75 and metrics["auc"] == 1.0
    assert metrics["log_loss"] == pytest.approx(-np.log([0.7, 0.8, 0.3, 1.0]).mean())
    one_class = compute_metrics(target, predictions[:1], np.array([0]))
    assert "auc" not in one_class, "the AUC of one class is not defined"


def test_regression_metrics_are_in_the_units_of_the_target() -> None:
    target = RegressionTarget.fit(np.array([0.0, 10.0]))
    metrics = compute_metrics(target, np.array([[1.0], [-1.0]]), np.array([[1.0], [1.0]]))
    assert metrics["rmse"] == pytest.approx(np.sqrt(50)) and metrics["mae"] == pytest.approx(5)
