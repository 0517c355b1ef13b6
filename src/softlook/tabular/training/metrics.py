"""Metrics of predictions: accuracy, AUC, log loss, RMSE, MAE, R2."""

from typing import Any

import numpy as np
from sklearn.metrics import log_loss, mean_absolute_error, r2_score, roc_auc_score, root_mean_squared_error

from softlook.tabular.preprocessing.rows import TableTensors
from softlook.tabular.preprocessing.target import RegressionTarget, Target

MAX_AUC_CLASSES = 100
"""With more classes the AUC is not computed."""


def compute_metrics(target: Target, predictions: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    """Accuracy, AUC and log loss of probabilities (N, classes); RMSE, MAE and R2 of numbers, in the units of y.

    Predictions and targets are encoded as by `Target`: class indices, or standardized numbers.

    >>> from softlook.tabular.preprocessing.target import ClassTarget
    >>> compute_metrics(ClassTarget(np.array(["no", "yes"])), np.array([[0.9, 0.1], [0.4, 0.6]]), np.array([0, 1]))
    {'accuracy': 1.0, 'auc': 1.0, 'log_loss': 0.308...}
    """
    loss = compute_loss(target, predictions, targets)
    if isinstance(target, RegressionTarget):
        predicted, true = target.inverse_transform(predictions), target.inverse_transform(targets)
        r2 = float(r2_score(true, predicted)) if len(true) > 1 else float("nan")
        return {"rmse": loss, "mae": float(mean_absolute_error(true, predicted)), "r2": r2}
    metrics = {"accuracy": float((predictions.argmax(1) == targets).mean())}
    if (auc := _roc_auc(predictions, targets)) is not None:
        metrics["auc"] = auc
    return {**metrics, "log_loss": loss}


def compute_loss(target: Target, predictions: np.ndarray, targets: np.ndarray) -> float:
    """Log loss of probabilities, RMSE of numbers; lower is better."""
    if isinstance(target, RegressionTarget):
        true, predicted = target.inverse_transform(targets), target.inverse_transform(predictions)
        return float(root_mean_squared_error(true, predicted))
    clipped = predictions.clip(1e-15)
    clipped = clipped / clipped.sum(1, keepdims=True)
    return float(log_loss(targets, clipped, labels=np.arange(predictions.shape[1])))


def evaluate_rows(estimator: Any, rows: TableTensors) -> dict[str, float]:
    """The metrics of a fitted estimator on rows with targets."""
    assert rows.targets is not None
    device = next(estimator.model_.parameters()).device
    return compute_metrics(estimator.target_, estimator._predict_rows(rows.to(device)), rows.targets.cpu().numpy())


def _roc_auc(predictions: np.ndarray, targets: np.ndarray) -> float | None:
    """Area under the ROC curve; one-vs-rest mean for several classes. None if a class is absent."""
    present = np.unique(targets)
    if predictions.shape[1] > MAX_AUC_CLASSES or len(present) < 2 or len(present) < predictions.shape[1]:
        return None
    if predictions.shape[1] == 2:
        return float(roc_auc_score(targets, predictions[:, 1]))
    return float(np.mean([roc_auc_score(targets == index, predictions[:, index]) for index in present]))
