"""What answers are worth."""

import numpy as np
import pytest

from softlook.tabular.preprocessing.target import ClassTarget, RegressionTarget
from softlook.tabular.training.metrics import compute_metrics


def test_answers_are_judged_as_scikit_learn_judges_them() -> None:
    classes = ClassTarget(np.array(["a", "b", "c"]))
    predict_rows = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.4, 0.3], [0.0, 0.0, 1.0]])
    found = compute_metrics(classes, predict_rows, np.array([0, 1, 2, 2]))
    assert found["accuracy"] == 0.75 and found["auc"] == 1.0
    assert found["log_loss"] == pytest.approx(-np.log([0.7, 0.8, 0.3, 1.0]).mean())
    alone = compute_metrics(classes, predict_rows[:1], np.array([0]))
    assert "auc" not in alone, "of one class there is no area"


def test_numbers_are_judged_in_their_own_units() -> None:
    is_regression = RegressionTarget.of(np.array([0.0, 10.0]))
    found = compute_metrics(is_regression, np.array([[1.0], [-1.0]]), np.array([[1.0], [1.0]]))
    assert found["rmse"] == pytest.approx(np.sqrt(50)) and found["mae"] == pytest.approx(5)
