"""Answers about tables in pieces."""

from collections.abc import Iterator
from typing import Any, Literal, Protocol

import numpy as np
from sklearn.utils.validation import check_is_fitted

from softlook.tabular.sources.bad_cells import told_by_file
from softlook.tabular.sources.pieces import Pieces, Roles, is_pieces, joined, with_columns


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
        """Answers piece by piece, where all of them at once would be too many; a table that is whole is one piece."""
        return _placed(X, map(getattr(self, method), self._pieces(X)))

    def _pieces(self, X: Any) -> Iterator[Any]:
        """Pieces of a table with the columns that were learned from, whatever others they have."""
        check_is_fitted(self, "model_")
        return map(self._own, Pieces.of(X if is_pieces(X) else [X]))

    def _own(self, piece: Any) -> Any:
        """A piece with the columns that were learned from, where these have names."""
        names = getattr(self, "feature_names_in_", None)
        return piece if names is None else with_columns(piece, names.tolist())

    def _whole(self, X: Any, y: Any) -> tuple[Any, Any]:
        """A table and what is wanted of it, also of one in pieces, where y is the name of its target."""
        if not is_pieces(X):
            return X, y
        pieces = Pieces.of(X)
        rows, wanted, _ = Roles.of(y, None).apart(joined(list(pieces.tables())), is_text=pieces.is_text)
        return self._own(rows), wanted

    def _scored(
        self: Estimator, X: Any, y: Any, sample_weight: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """What is wanted, what is answered, and what rows weigh, of a table in pieces."""
        found: list[tuple[Any, ...]] = []
        for rows, wanted, weight in Pieces.of(X).apart(Roles.of(y, sample_weight)):
            (own,) = self._pieces([rows])
            with told_by_file(X):
                found.append((self._checked_y(rows, wanted), self.predict(own), weight))
        wanted, answered, weights = zip(*found, strict=True)
        return np.concatenate(wanted), np.concatenate(answered), None if weights[0] is None else np.concatenate(weights)


def _placed(X: Any, answers: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    with told_by_file(X):
        yield from answers
