"""Is what came to an estimator what it can work with? The words are scikit-learn's, where it has some."""

from typing import Any

import narwhals as nw
import numpy as np
from scipy.sparse import issparse
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    assert_all_finite,
    check_array,
    check_consistent_length,
    column_or_1d,
    validate_data,
)

from softlook.base.errors import DataError


def checked_frame(estimator: Any, X: Any, *, reset: bool) -> Any:
    """A frame as it is, or anything like an array as one; names and number of columns are learned, or compared."""
    if nw.dependencies.is_into_dataframe(X):
        X = validate_data(estimator, X, reset=reset, skip_check_array=True)
        rows, columns = X.shape
        if not rows or not columns:
            what = f"{rows} sample(s)" if not rows else f"{columns} feature(s)"
            raise ValueError(f"Found array with {what} (shape=({rows}, {columns})) while a minimum of 1 is required.")
        return X
    if isinstance(X, list | tuple):
        X = np.array(X, dtype=object)  # else numbers beside words would become words
    return validate_data(estimator, X, reset=reset, dtype=None, ensure_all_finite="allow-nan", accept_sparse=False)


def checked_labels(estimator: Any, X: Any, y: Any) -> np.ndarray:
    """(N,) labels of one kind, none of them missing."""
    y = column_or_1d(_plain(_there(estimator, y)), warn=True)
    _refuse_missing(y)
    _refuse_mixed(y)
    check_classification_targets(y)
    check_consistent_length(X, y)
    return y


def checked_amounts(estimator: Any, X: Any, y: Any) -> np.ndarray:
    """(N,) or (N, K) finite numbers."""
    y = check_array(_plain(_there(estimator, y)), ensure_2d=False, dtype="numeric", input_name="y", estimator=estimator)
    if y.ndim == 2 and not y.shape[1]:
        raise DataError("there is nothing to predict: y has no columns")
    check_consistent_length(X, y)
    return y.astype(np.float64)


def checked_weight(sample_weight: Any, X: Any) -> np.ndarray:
    """(N,) weights from 0 up, ones where none came."""
    rows = np.empty((X.shape[0], 1))  # all that is looked at is how many there are
    weight = _check_sample_weight(sample_weight, rows, dtype=np.float64, ensure_non_negative=True)
    if not weight.any():
        raise ValueError("sample weights are all zero: nothing would be learned from any row")
    return weight


def _there(estimator: Any, y: Any) -> Any:
    if y is None:
        name = type(estimator).__name__
        raise ValueError(f"This {name} estimator requires y to be passed, but the target y is None.")
    if issparse(y):
        raise TypeError("y is sparse, and wanted as an array. Use y.toarray().")
    return y


def _plain(y: Any) -> Any:
    """What narwhals knows, as numpy; the rest as it is."""
    if nw.dependencies.is_into_series(y):
        return nw.from_native(y, series_only=True).to_numpy()
    if nw.dependencies.is_into_dataframe(y):
        return nw.from_native(y, eager_only=True).to_numpy()
    return y


def _refuse_missing(y: np.ndarray) -> None:
    if y.dtype.kind == "f":
        assert_all_finite(y, input_name="y")
    if y.dtype.kind == "O" and any(label is None or label != label for label in y.tolist()):
        raise ValueError("Input y contains NaN, or None: a row without a label cannot be learned from. Leave it out.")


def _refuse_mixed(y: np.ndarray) -> None:
    """Words beside numbers have no order."""
    if y.dtype.kind == "O" and len({isinstance(label, str) for label in y.tolist()}) > 1:
        kinds = sorted({type(label).__name__ for label in y.tolist()})
        raise DataError(f"labels are of one kind; these are of {' and '.join(kinds)}")
