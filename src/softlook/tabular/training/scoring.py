"""Validation scores by the name of a scikit-learn scorer."""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.metrics import get_scorer, get_scorer_names

from softlook.base.errors import ConfigError
from softlook.tabular.preprocessing.target import MultilabelTarget, QuantileTarget, RegressionTarget, Target

BUILT_IN = ("loss", "score", "auto")
"""Metrics for early stopping that are no scorers."""


def check_metric(name: object) -> None:
    """Raise an error for an unknown metric for early stopping."""
    if name is not None and name not in BUILT_IN and name not in get_scorer_names():
        raise ConfigError(
            f"early_stopping_metric: expected one of {', '.join(BUILT_IN)}, or the name of a scikit-learn scorer; "
            f"got {name!r}"
        )


def scorer_score(name: str, target: Target, predictions: np.ndarray, targets: np.ndarray, weight: np.ndarray) -> float:
    """The score of predictions, higher is better; predictions and targets are encoded as by `Target`.

    Quantiles have no scorer.

    >>> from softlook.tabular.preprocessing.target import ClassTarget
    >>> target, predictions = ClassTarget(np.array(["no", "yes"])), np.array([[0.9, 0.1], [0.4, 0.6]])
    >>> scorer_score("roc_auc", target, predictions, np.array([0, 1]), np.ones(2))
    1.0
    """
    if isinstance(target, QuantileTarget):
        raise ConfigError(f"early_stopping_metric: expected 'loss' with quantiles; got {name!r}")
    if isinstance(target, RegressionTarget):
        predictions, targets = target.inverse_transform(predictions), target.inverse_transform(targets)
        estimator: Any = _PredictedNumbers(predictions)
    else:
        is_multilabel = isinstance(target, MultilabelTarget)
        estimator = (_PredictedLabels if is_multilabel else _PredictedClasses)(predictions)
    try:
        return float(get_scorer(name)(estimator, np.empty((len(targets), 0)), targets, sample_weight=weight))
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"early_stopping_metric: {name!r} cannot score this target: {error!s:.300}") from None


class _PredictedNumbers(BaseEstimator):
    """A regressor whose predictions are known."""

    _estimator_type = "regressor"

    def __init__(self, predictions: np.ndarray) -> None:
        self.predictions = predictions

    def fit(self, X: Any, y: Any) -> Any:
        return self

    def predict(self, X: Any) -> np.ndarray:
        return self.predictions

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.estimator_type = self._estimator_type
        return tags


class _PredictedClasses(_PredictedNumbers):
    """A classifier whose probabilities are known."""

    _estimator_type = "classifier"

    @property
    def classes_(self) -> np.ndarray:
        return np.arange(self.predictions.shape[1])

    def predict(self, X: Any) -> np.ndarray:
        return self.predictions.argmax(1)

    def predict_proba(self, X: Any) -> np.ndarray:
        return self.predictions


class _PredictedLabels(_PredictedClasses):
    """A classifier of several labels per row whose probabilities are known."""

    def predict(self, X: Any) -> np.ndarray:
        return (self.predictions >= 0.5).astype(np.int64)
