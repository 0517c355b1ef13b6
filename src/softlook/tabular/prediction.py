"""Prediction of a fitted estimator: for tables, chunked tables and rows."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import nn

from softlook.base.device import choose_device
from softlook.tabular.ensemble.ensemble import TableEnsemble
from softlook.tabular.intervals import MAX_RESIDUALS, absolute_residuals
from softlook.tabular.io.chunked import (
    ChunkedTable,
    TargetColumns,
    concat_tables,
    is_chunked,
    locate_in_files,
    select_columns,
)
from softlook.tabular.parameters import CommonParams
from softlook.tabular.preprocessing.preprocessor import TablePreprocessor
from softlook.tabular.preprocessing.rows import TableTensors, concat_rows
from softlook.tabular.preprocessing.target import Target
from softlook.tabular.presets import Family, Hyperparameters
from softlook.tabular.training.retrieval import RowRetrieval
from softlook.tabular.training.runtime import limit_threads
from softlook.tabular.training.trainer import predict_rows
from softlook.tabular.validation import validate_features

FLOAT64_ROWS = 4096
"""Up to so many rows are predicted in double precision, which costs little."""


class BaseTableEstimator(CommonParams, BaseEstimator, ABC):
    """A fitted estimator, and what predicts with it."""

    family: ClassVar[Family]

    model_: nn.Module
    preprocessor_: TablePreprocessor
    target_: Target
    hyperparameters_: Hyperparameters
    retrieval_: RowRetrieval | None
    ensemble_: TableEnsemble | None
    residuals_: np.ndarray | None
    """(R, K) sorted absolute residuals of a regression on rows that it was not trained on, standardized."""

    @abstractmethod
    def predict(self, X: Any) -> np.ndarray:
        """The predictions for a table."""

    @abstractmethod
    def _validate_y(self, X: Any, y: Any) -> np.ndarray:
        """Check the target."""

    @abstractmethod
    def _score_predictions(self, predictions: np.ndarray, y: np.ndarray) -> float:
        """The score of predictions; higher is better."""

    def predict_chunks(
        self, X: Any, *, method: Literal["predict", "predict_proba"] = "predict"
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
        self, X: Any, y: Any, sample_weight: Any
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

    def _to_device_rows(self, X: Any) -> TableTensors:
        """New rows, checked, transformed and on the device."""
        check_is_fitted(self, "model_")
        if is_chunked(X):
            with locate_in_files(X):
                return concat_rows([self._to_device_rows(chunk) for chunk in self._chunks(X)])
        rows = self.preprocessor_.transform(validate_features(self, X, reset=False))
        device = choose_device(self.device)
        self.model_.to(device)
        return rows.to(device)

    def _predict_raw(self, X: Any) -> np.ndarray:
        """(N, C): probabilities, or standardized numbers."""
        if is_chunked(X):
            with locate_in_files(X):
                return np.concatenate([self._predict_raw(chunk) for chunk in self._chunks(X)])
        rows = self._to_device_rows(X)
        with limit_threads(self.n_jobs):
            return self._predict_rows(rows)

    def _predict_rows(self, rows: TableTensors, float64_model: nn.Module | None = None) -> np.ndarray:
        """Raw predictions. `float64_model`: a copy of the model in double precision, if the caller has one."""
        model, device = self.model_, rows.numbers.device
        if self.ensemble_ is not None:
            return self._predict_ensemble(self.ensemble_.to(device), rows)
        if (self.family == "tab" or len(rows) <= FLOAT64_ROWS) and device.type != "mps":
            # In single precision the last bit of a prediction depends on a row's position in the batch; for a
            # TabTransformer, whose last layers are narrow, more than the last bit.
            model = copy.deepcopy(model).double() if float64_model is None else float64_model
            rows = replace(rows, numbers=rows.numbers.double())
        return self._predict_rows_with(model, rows)

    def _predict_ensemble(self, ensemble: TableEnsemble, rows: TableTensors) -> np.ndarray:
        if len(rows) <= FLOAT64_ROWS and rows.numbers.device.type != "mps":
            ensemble, rows = ensemble.double(), replace(rows, numbers=rows.numbers.double())
        return ensemble.predict(rows).cpu().numpy()

    def _predict_rows_with(self, model: nn.Module, rows: TableTensors) -> np.ndarray:
        """Raw predictions in the precision of a model, the estimator's own or a copy."""
        retrieval = None if self.retrieval_ is None else self.retrieval_.to(rows.numbers.device)
        return predict_rows(model, rows, self.target_, retrieval).cpu().numpy()

    def _store_validation_residuals(self, validation: TableTensors | None) -> None:
        """Residuals of the validation rows, of a regression."""
        if validation is None or self.target_.problem != "regression":
            self._store_residuals(None, None)
            return
        rows = validation.take(slice(MAX_RESIDUALS))
        self._store_residuals(torch.from_numpy(self._predict_rows_with(self.model_, rows)), rows.targets)

    def _store_residuals(self, predictions: torch.Tensor | None, targets: torch.Tensor | None) -> None:
        if predictions is None or targets is None or self.target_.problem != "regression":
            self.residuals_ = None
            return
        self.residuals_ = absolute_residuals(predictions.cpu().numpy(), targets.double().cpu().numpy())


def _locate_errors(X: Any, predictions: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    with locate_in_files(X):
        yield from predictions
