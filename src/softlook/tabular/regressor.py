"""Regressors: TableTransformer, FT-Transformer, TabTransformer."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import d2_pinball_score, r2_score

from softlook.base.errors import ConfigError
from softlook.tabular.estimator import TableEstimator
from softlook.tabular.intervals import half_width
from softlook.tabular.io.chunked import is_chunked
from softlook.tabular.parameters import (
    FTTransformerParams,
    RegressorParams,
    TableTransformerParams,
    document_parameters,
)
from softlook.tabular.preprocessing.target import QuantileTarget, RegressionTarget
from softlook.tabular.preprocessing.target_stats import RunningMoments, TargetStats
from softlook.tabular.presets import Family
from softlook.tabular.validation import validate_regression_targets


class TableRegressor(RegressorMixin, RegressorParams, TableEstimator):
    """Base class of the regressors."""

    target_: RegressionTarget  # pyright: ignore[reportIncompatibleVariableOverride]  (some of the base class's)

    def predict(self, X: Any) -> np.ndarray:
        """(N,) or (N, K): predictions in the units of y. With `quantiles`, these are the last dimension."""
        predictions = self._predict_raw(X)  # first: it checks that the estimator is fitted
        return self.target_.inverse_transform(predictions)

    def predict_interval(self, X: Any, *, coverage: float = 0.9) -> np.ndarray:
        """(N, 2) or (N, K, 2): intervals that contain this fraction of new targets, if rows are exchangeable.

        Conformal: predictions plus or minus a quantile of the absolute residuals of rows that the model was not trained
        on. These were used for early stopping and for weights, so the coverage is approximate.
        """
        predictions = self._predict_raw(X)
        if self.quantiles is not None:
            raise ConfigError("predict_interval requires quantiles=None. With quantiles, predict returns the bounds.")
        if self.residuals_ is None:
            raise ConfigError("an interval requires validation rows, and this fit had none. Fit 50 rows or more.")
        width = half_width(self.residuals_, coverage)
        bounds = [self.target_.inverse_transform(predictions + sign * width) for sign in (-1, 1)]
        return np.stack(bounds, -1)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R2, the coefficient of determination; with `quantiles`, the mean D2 of their pinball losses.

        y is a column name if X is chunked.
        """
        if is_chunked(X):
            return self._score(*self._predict_chunks_with_targets(X, y, sample_weight))
        return self._score(self._validate_y(X, y), self.predict(X), sample_weight)

    def _score(self, true: np.ndarray, predicted: np.ndarray, weight: Any = None) -> float:
        if not isinstance(self.target_, QuantileTarget):
            return float(r2_score(true, predicted, sample_weight=weight))
        pairs = zip(np.moveaxis(predicted, -1, 0), self.target_.quantiles, strict=True)
        return float(np.mean([d2_pinball_score(true, one, alpha=q, sample_weight=weight) for one, q in pairs]))

    def _validate_y(self, X: Any, y: Any) -> np.ndarray:
        return validate_regression_targets(self, X, y)

    def _fit_target(self, y: np.ndarray, is_train: np.ndarray) -> RegressionTarget:
        return self._with_quantiles(RegressionTarget.fit(y[is_train]))

    def _target_stats(self) -> RunningMoments:
        return RunningMoments()

    def _chunked_target(self, stats: TargetStats) -> RegressionTarget:
        assert isinstance(stats, RunningMoments)
        return self._with_quantiles(stats.target())

    def _with_quantiles(self, target: RegressionTarget) -> RegressionTarget:
        if self.quantiles is None:
            return target
        return QuantileTarget(target.mean, target.std, target.shape, tuple(map(float, self.quantiles)))

    def _score_predictions(self, predictions: np.ndarray, y: np.ndarray) -> float:
        return self._score(y, self.target_.inverse_transform(predictions))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


@document_parameters
@dataclass(kw_only=True, eq=False, repr=False)
class TableTransformerRegressor(TableTransformerParams, TableRegressor):
    """TableTransformer regressor: the recommended default.

    By default an ensemble of TableTransformers, boosted trees and a linear model, cross-fitted and weighted by their
    out-of-fold predictions. TableTransformer is softlook's own model: an FT-Transformer with piecewise embeddings of
    numbers and members that share most weights; its size depends on the table. The same `random_state` gives
    bit-identical results on a CPU with the same number of threads, unless a time limit ends training.

    >>> X = np.linspace(-1, 1, 80)[:, None]
    >>> small = {"ensemble": "single", "dim": 16, "depth": 1, "heads": 2, "epochs": 100}
    >>> model = TableTransformerRegressor(**small, random_state=0).fit(X, X[:, 0] ** 2)
    >>> bool(abs(model.predict([[0.5]])[0] - 0.25) < 0.1)
    True
    """

    family: ClassVar[Family] = "table"


@document_parameters
@dataclass(kw_only=True, eq=False, repr=False)
class FTTransformerRegressor(FTTransformerParams, TableRegressor):
    """FT-Transformer regressor (Gorishniy et al. 2021): every column is a token, and [CLS] attends to all of them.

    >>> X = np.linspace(-1, 1, 80)[:, None]
    >>> model = FTTransformerRegressor(dim=16, depth=1, heads=2, lr=1e-2, epochs=50, random_state=0).fit(X, X[:, 0])
    >>> model.predict(X).shape
    (80,)
    """

    family: ClassVar[Family] = "ft"


@document_parameters
@dataclass(kw_only=True, eq=False, repr=False)
class TabTransformerRegressor(TableRegressor):
    """TabTransformer regressor (Huang et al. 2020): categories attend to each other, numbers join in the MLP.

    Without categories it is an MLP. `preset="improved"` has no LayerNorm over numbers, a wider MLP and softlook's
    training defaults.

    >>> X, y = [["a", 0.1], ["b", 0.1]] * 40, [1.0, 2.0] * 40
    >>> model = TabTransformerRegressor(preset="improved", depth=1, epochs=60, random_state=0).fit(X, y)
    >>> model.predict([["a", 0.1], ["b", 0.1]]).round(1)
    array([1., 2.])
    """

    family: ClassVar[Family] = "tab"
