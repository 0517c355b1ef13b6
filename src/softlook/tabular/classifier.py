"""Classifiers: TableTransformer, FT-Transformer, TabTransformer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted

from softlook.base.errors import ConfigError
from softlook.tabular.estimator import TableEstimator
from softlook.tabular.io.chunked import is_chunked
from softlook.tabular.parameters import (
    ClassifierParams,
    FTTransformerParams,
    TableTransformerParams,
    document_parameters,
)
from softlook.tabular.preprocessing.target import ClassTarget, MultilabelTarget
from softlook.tabular.preprocessing.target_stats import ClassCounts
from softlook.tabular.presets import Family
from softlook.tabular.validation import resolve_class_weights, validate_labels


class TableClassifier(ClassifierMixin, ClassifierParams, TableEstimator):
    """Base class of the classifiers."""

    target_: ClassTarget | MultilabelTarget  # pyright: ignore[reportIncompatibleVariableOverride]  (some of the base class's)

    @property
    def classes_(self) -> np.ndarray:
        """The class labels, sorted; the indices of the labels, if a row has several."""
        check_is_fitted(self, "target_")
        return self.target_.values

    def predict_proba(self, X: Any) -> np.ndarray:
        """(N, classes): class probabilities in the order of `classes_`; (N, K) of each of several labels per row."""
        return self._predict_raw(X)

    def predict(self, X: Any) -> np.ndarray:
        """(N,): the most probable class; (N, K): 1 for each of several labels that is more probable than not."""
        predictions = self._predict_raw(X)  # first: it checks that the estimator is fitted
        return self.target_.to_labels(predictions)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy; y is a column name if X is chunked."""
        if not is_chunked(X):
            return super().score(X, y, sample_weight)
        true, predicted, weight = self._predict_chunks_with_targets(X, y, sample_weight)
        return float(accuracy_score(true, predicted, sample_weight=weight))

    def _validate_y(self, X: Any, y: Any) -> np.ndarray:
        return validate_labels(self, X, y)

    def _fit_target(self, y: np.ndarray, is_train: np.ndarray) -> ClassTarget | MultilabelTarget:
        return ClassTarget.fit(y) if y.ndim == 1 else MultilabelTarget.fit(y)

    def _target_stats(self) -> ClassCounts:
        return ClassCounts()

    def _class_weights(self, y: np.ndarray, counts: np.ndarray | None = None) -> np.ndarray | None:
        if self.class_weight is None:
            return None
        if y.ndim > 1:
            raise ConfigError("class_weight: expected None for several labels per row. Use sample_weight.")
        if isinstance(self.class_weight, Mapping):
            return resolve_class_weights(self.class_weight, self.target_.values.tolist())
        if self.class_weight != "balanced":
            raise ConfigError(
                f"class_weight: expected 'balanced' or a dict of class weights; got {self.class_weight!r}"
            )
        counts = np.bincount(self.target_.encode(y), counts, minlength=len(self.target_.values))
        return counts.sum() / (np.count_nonzero(counts) * np.maximum(counts, 1))

    def _score_predictions(self, predictions: np.ndarray, y: np.ndarray) -> float:
        return float(accuracy_score(y, self.target_.to_labels(predictions)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


@document_parameters
@dataclass(kw_only=True, eq=False, repr=False)
class TableTransformerClassifier(TableTransformerParams, TableClassifier):
    """TableTransformer classifier: the recommended default.

    By default an ensemble of TableTransformers, boosted trees and a linear model, cross-fitted and weighted by their
    out-of-fold predictions. TableTransformer is softlook's own model: an FT-Transformer with piecewise embeddings of
    numbers and members that share most weights; its size depends on the table. The same `random_state` gives
    bit-identical results on a CPU with the same number of threads, unless a time limit ends training.

    >>> X, y = [[0.1, "a"], [0.9, "b"]] * 20, ["low", "high"] * 20
    >>> model = TableTransformerClassifier(dim=16, depth=1, heads=2, epochs=30, random_state=0).fit(X, y)
    >>> model.predict([[0.1, "a"], [0.9, "b"]])
    array(['low', 'high'], dtype='<U4')
    """

    family: ClassVar[Family] = "table"


@document_parameters
@dataclass(kw_only=True, eq=False, repr=False)
class FTTransformerClassifier(FTTransformerParams, TableClassifier):
    """FT-Transformer classifier (Gorishniy et al. 2021): every column is a token, and [CLS] attends to all of them.

    >>> X, y = [[0.1, "a"], [0.9, "b"]] * 20, ["low", "high"] * 20
    >>> model = FTTransformerClassifier(dim=16, depth=1, heads=2, lr=1e-3, epochs=50, random_state=0).fit(X, y)
    >>> model.predict([[0.1, "a"], [0.9, "b"]])
    array(['low', 'high'], dtype='<U4')
    """

    family: ClassVar[Family] = "ft"


@document_parameters
@dataclass(kw_only=True, eq=False, repr=False)
class TabTransformerClassifier(TableClassifier):
    """TabTransformer classifier (Huang et al. 2020): categories attend to each other, numbers join in the MLP.

    Without categories it is an MLP. `preset="improved"` has no LayerNorm over numbers, a wider MLP and softlook's
    training defaults.

    >>> X, y = [[0.1, "a"], [0.9, "b"]] * 20, [False, True] * 20
    >>> model = TabTransformerClassifier(preset="improved", depth=1, epochs=30, random_state=0).fit(X, y)
    >>> model.predict([[0.1, "a"], [0.9, "b"]])
    array([False,  True])
    """

    family: ClassVar[Family] = "tab"
