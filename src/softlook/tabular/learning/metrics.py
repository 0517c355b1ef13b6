"""What answers about rows are worth, in the numbers that people compare."""

from typing import Any

import numpy as np
from sklearn.metrics import log_loss, mean_absolute_error, r2_score, roc_auc_score, root_mean_squared_error

from softlook.tabular.encoding.rows import Rows
from softlook.tabular.encoding.targets import Amounts, Classes

MOST_CLASSES = 100
"""Up to so many an area under the curve is worth its time."""


def judged(targets: Classes | Amounts, answers: np.ndarray, wanted: np.ndarray) -> dict[str, float]:
    """Of probabilities (N, classes) accuracy, AUC and log loss; of numbers RMSE, MAE and R2, in the units of y.

    Answers and what was wanted are as `Targets` has them: codes of classes, or numbers in units of learning.

    >>> judged(Classes(np.array(["no", "yes"])), np.array([[0.9, 0.1], [0.4, 0.6]]), np.array([0, 1]))
    {'accuracy': 1.0, 'auc': 1.0, 'log_loss': 0.308...}
    """
    loss = loss_of(targets, answers, wanted)
    if isinstance(targets, Amounts):
        said, true = targets.read(answers), targets.read(wanted)
        found = {"rmse": loss, "mae": mean_absolute_error(true, said)}
        return {**_floats(found), "r2": float(r2_score(true, said)) if len(true) > 1 else float("nan")}
    found: dict[str, Any] = {"accuracy": (answers.argmax(1) == wanted).mean()}
    if (area := _area(answers, wanted)) is not None:
        found["auc"] = area
    return _floats({**found, "log_loss": loss})


def loss_of(targets: Classes | Amounts, answers: np.ndarray, wanted: np.ndarray) -> float:
    """The log loss of probabilities, the RMSE of numbers: the less, the better."""
    if isinstance(targets, Amounts):
        return float(root_mean_squared_error(targets.read(wanted), targets.read(answers)))
    return float(log_loss(wanted, _sound(answers), labels=np.arange(answers.shape[1])))


def scores_on(estimator: Any, rows: Rows) -> dict[str, float]:
    """What a fitted estimator is worth on rows that know what is wanted."""
    assert rows.wanted is not None
    device = next(estimator.model_.parameters()).device
    return judged(estimator.targets_, estimator._answers_to(rows.to(device)), rows.wanted.cpu().numpy())


def _floats(values: dict[str, Any]) -> dict[str, float]:
    """Plain numbers, for JSON."""
    return {name: float(value) for name, value in values.items()}


def _area(answers: np.ndarray, wanted: np.ndarray) -> float | None:
    """Under the ROC curve; of several classes the mean of each against the others. None where one is absent."""
    there = np.unique(wanted)
    if answers.shape[1] > MOST_CLASSES or len(there) < 2 or len(there) < answers.shape[1]:
        return None
    if answers.shape[1] == 2:
        return float(roc_auc_score(wanted, answers[:, 1]))
    return float(np.mean([roc_auc_score(wanted == place, answers[:, place]) for place in there]))


def _sound(answers: np.ndarray) -> np.ndarray:
    """Never quite nought, and one in all."""
    clipped = answers.clip(1e-15)
    return clipped / clipped.sum(1, keepdims=True)
