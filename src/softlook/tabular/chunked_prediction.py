"""Prediction for chunked tables."""

from collections.abc import Iterator
from typing import Any, Literal, Protocol

import numpy as np
from sklearn.utils.validation import check_is_fitted

from softlook.tabular.io.chunked import (
    ChunkedTable,
    TargetColumns,
    concat_tables,
    is_chunked,
    locate_in_files,
    select_columns,
)


class Predictor(Protocol):
    """What the mixin requires of an estimator."""

    def predict(self, X: Any) -> np.ndarray: ...
    def _chunks(self, X: Any) -> Iterator[Any]: ...
    def _validate_y(self, X: Any, y: Any) -> np.ndarray: ...


class ChunkedPredictionMixin:
    """Prediction and scoring of chunked tables."""

    def predict_chunks(
        self: Predictor, X: Any, *, method: Literal["predict", "predict_proba"] = "predict"
    ) -> Iterator[np.ndarray]:
        """Predictions chunk by chunk, in bounded memory; a table in memory is one chunk."""
        return _locate_errors(X, map(getattr(self, method), self._chunks(X)))

    def _chunks(self, X: Any) -> Iterator[Any]:
        """Chunks with the columns of the training table; others are dropped."""
        check_is_fitted(self, "model_")
        return map(self._select_features, ChunkedTable.of(X if is_chunked(X) else [X]))

    def _select_features(self, chunk: Any) -> Any:
        """A chunk with the columns of the training table, if these have names."""
        names = getattr(self, "feature_names_in_", None)
        return chunk if names is None else select_columns(chunk, names.tolist())

    def _load(self, X: Any, y: Any) -> tuple[Any, Any]:
        """A table and its target in memory; y is a column name if X is chunked."""
        if not is_chunked(X):
            return X, y
        chunks = ChunkedTable.of(X)
        table = concat_tables(list(chunks.tables()))
        features, target, _ = TargetColumns.of(y, None).split(table, is_text=chunks.is_text)
        return self._select_features(features), target

    def _predict_chunks_with_targets(
        self: Predictor, X: Any, y: Any, sample_weight: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Targets, predictions and sample weights of a chunked table."""
        parts: list[tuple[Any, ...]] = []
        for features, target, weight in ChunkedTable.of(X).split(TargetColumns.of(y, sample_weight)):
            (own,) = self._chunks([features])
            with locate_in_files(X):
                parts.append((self._validate_y(features, target), self.predict(own), weight))
        targets, predictions, weights = zip(*parts, strict=True)
        weight = None if weights[0] is None else np.concatenate(weights)
        return np.concatenate(targets), np.concatenate(predictions), weight


def _locate_errors(X: Any, predictions: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    with locate_in_files(X):
        yield from predictions
