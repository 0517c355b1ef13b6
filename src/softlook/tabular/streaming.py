"""Answers about tables in pieces."""

from collections.abc import Iterator
from typing import Any, Literal, Protocol

import numpy as np
from sklearn.utils.validation import check_is_fitted

from softlook.tabular.pieces import Pieces, Roles, with_columns


class Estimator(Protocol):
    """What is asked of an estimator here."""

    def predict(self, X: Any) -> np.ndarray: ...
    def _pieces(self, X: Any) -> Iterator[Any]: ...
    def _checked_y(self, X: Any, y: Any) -> np.ndarray: ...


class Streaming:
    """What an estimator answers to a table in pieces."""

    def predict_pieces(
        self: Estimator, X: Any, *, method: Literal["predict", "predict_proba"] = "predict"
    ) -> Iterator[np.ndarray]:
        """Answers piece by piece, where all of them at once would be too many; X is a table in pieces."""
        return (getattr(self, method)(piece) for piece in self._pieces(X))

    def _pieces(self, X: Any) -> Iterator[Any]:
        """Pieces of a table with the columns that were learned from, whatever others they have."""
        check_is_fitted(self, "model_")
        names = getattr(self, "feature_names_in_", None)
        return (piece if names is None else with_columns(piece, names.tolist()) for piece in Pieces.of(X))

    def _scored(
        self: Estimator, X: Any, y: Any, sample_weight: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """What is wanted, what is answered, and what rows weigh, of a table in pieces."""
        pieces, roles = Pieces.of(X), Roles.of(y, sample_weight)
        found: list[tuple[Any, ...]] = []
        for table in pieces.tables():
            X, y, weight = roles.apart(table, is_text=pieces.is_text)
            (own,) = self._pieces([X])
            found.append((self._checked_y(X, y), self.predict(own), weight))
        wanted, answered, weights = zip(*found, strict=True)
        return np.concatenate(wanted), np.concatenate(answered), None if weights[0] is None else np.concatenate(weights)
