"""Validation of estimator inputs and parameters.

Error messages use scikit-learn's wording where it has one.
"""

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, get_args

import narwhals as nw
import numpy as np
import pyarrow as pa
from scipy.sparse import issparse
from sklearn.utils.multiclass import check_classification_targets, is_multilabel
from sklearn.utils.validation import (
    _check_sample_weight,
    assert_all_finite,
    check_array,
    check_consistent_length,
    column_or_1d,
    validate_data,
)

from softlook.base.errors import ConfigError, DataError
from softlook.tabular.formatting import join_names
from softlook.tabular.io.arrow import pc
from softlook.tabular.io.frames import check_not_empty, is_missing, normalize_table
from softlook.tabular.preprocessing.target import TIME_KINDS
from softlook.tabular.presets import ARCHITECTURE, AUTO_DROPOUT, AUTO_SIZES, EnsembleName, Hyperparameters
from softlook.tabular.training.scoring import check_metric

MAX_DENSE_BYTES = 4 << 30
"""Of a sparse matrix as an array."""
NUMBER = (int, float, np.integer, np.floating)
WARM_START_FIXED = (*ARCHITECTURE, *AUTO_SIZES, "shared_blocks", "dropout", *AUTO_DROPOUT)
"""Hyperparameters of the model's structure; all others may change on a warm start."""


def validate_features(estimator: Any, X: Any, *, reset: bool) -> Any:
    """A frame as it is, or anything array-like as an array; column names are stored (`reset`) or compared."""
    X = _to_table(X)
    if nw.dependencies.is_into_dataframe(X):
        X = validate_data(estimator, X, reset=reset, skip_check_array=True)
        check_not_empty(*X.shape)
        return X
    if isinstance(X, list | tuple):
        X = np.array(X, dtype=object)  # otherwise numbers next to strings would become strings
    return validate_data(estimator, X, reset=reset, dtype=None, ensure_all_finite="allow-nan", accept_sparse=False)


def validate_labels(estimator: Any, X: Any, y: Any) -> np.ndarray:
    """(N,) labels of one type, none missing; or (N, K) indicators of several labels per row."""
    y = _to_numpy(_check_present(estimator, y))
    if is_multilabel(y):
        return _validate_indicators(X, y)
    y = column_or_1d(y, warn=True)
    _check_label_type(y)
    check_classification_targets(y)
    check_consistent_length(X, y)
    return y


def validate_regression_targets(estimator: Any, X: Any, y: Any) -> np.ndarray:
    """(N,) or (N, K) finite numbers."""
    y = _to_numpy(_check_present(estimator, y))
    y = check_array(y, ensure_2d=False, dtype="numeric", input_name="y", estimator=estimator)
    if y.ndim == 2 and not y.shape[1]:
        raise DataError("there is nothing to predict: y has no columns")
    if y.dtype.kind in TIME_KINDS:
        raise DataError(
            "expected numbers in y, got times",
            help="convert them to a unit of your choice: (y - y.min()) / numpy.timedelta64(1, 'D')",
        )
    check_consistent_length(X, y)
    return y.astype(np.float64)


def validate_sample_weight(sample_weight: Any, X: Any) -> np.ndarray:
    """(N,) non-negative weights; ones by default."""
    _check_not_name("sample_weight", sample_weight)
    rows = np.empty((X.shape[0], 1))  # only its length is used
    weight = _check_sample_weight(sample_weight, rows, dtype=np.float64, ensure_non_negative=True)
    if not weight.any():
        raise ValueError("sample weights are all zero: there is nothing to train on")
    return weight


def resolve_class_weights(weights: Mapping[Any, float], classes: Sequence[Any]) -> np.ndarray:
    """(classes,) the weight of each class; default: 1."""
    unknown = [name for name in weights if name not in classes]
    if unknown and any(name not in weights for name in classes):  # if all have a weight, others may be absent from y
        raise ConfigError(f"class_weight: {unknown[0]!r:.80} is not a class. The classes are {join_names(classes)}")
    for name, weight in weights.items():
        if not (isinstance(weight, Real) and 0 <= weight < np.inf):
            raise ConfigError(f"class_weight: expected a number >= 0 for {name!r:.80}; got {weight!r:.80}")
    return np.array([weights.get(name, 1.0) for name in classes], dtype=np.float64)


def check_parameters(estimator: Any) -> None:
    """Check the parameters that are not hyperparameters."""
    fraction, seconds, memory = estimator.validation_fraction, estimator.time_limit, estimator.memory_limit
    if not (isinstance(fraction, NUMBER) and 0 <= fraction < 1):
        raise ConfigError(f"validation_fraction: expected a number in [0, 1); got {fraction!r}")
    if seconds is not None and not (isinstance(seconds, NUMBER) and seconds > 0):
        raise ConfigError(f"time_limit: expected seconds > 0; got {seconds!r}")
    if memory is not None and not (isinstance(memory, NUMBER) and memory > 0):
        raise ConfigError(f"memory_limit: expected bytes > 0; got {memory!r}")
    ensemble = getattr(estimator, "ensemble", "single")
    if ensemble not in get_args(EnsembleName):
        raise ConfigError(f"ensemble: expected one of {', '.join(get_args(EnsembleName))}; got {ensemble!r}")
    check_metric(getattr(estimator, "early_stopping_metric", None))
    check_quantiles(getattr(estimator, "quantiles", None))
    n_cv = getattr(estimator, "n_cv", None)
    if n_cv is not None and not (isinstance(n_cv, int | np.integer) and n_cv >= 1):
        raise ConfigError(f"n_cv: expected an integer >= 1; got {n_cv!r}")
    if estimator.n_jobs is not None and not (isinstance(estimator.n_jobs, int | np.integer) and estimator.n_jobs):
        raise ConfigError(f"n_jobs: expected a number of threads, or -1 for all cores; got {estimator.n_jobs!r}")


def check_quantiles(quantiles: Any) -> None:
    """Raise an error unless quantiles are None or ascending levels.

    >>> check_quantiles([0.9, 0.1])
    Traceback (most recent call last):
    softlook.base.errors.ConfigError: quantiles: expected ascending levels between 0 and 1 such as [0.05, 0.5, 0.95]...
    """
    if quantiles is None:
        return
    levels = list(quantiles) if isinstance(quantiles, list | tuple | np.ndarray) else []
    is_level = [isinstance(level, NUMBER) and 0 < level < 1 for level in levels]
    if not levels or not all(is_level) or levels != sorted(set(levels)):
        raise ConfigError(
            f"quantiles: expected ascending levels between 0 and 1 such as [0.05, 0.5, 0.95]; got {quantiles!r}"
        )


def check_eval_set(eval_set: Any) -> None:
    """Raise an error unless eval_set is None or a pair."""
    if eval_set is not None and not (isinstance(eval_set, tuple | list) and len(eval_set) == 2):
        length = f" of {len(eval_set)}" if isinstance(eval_set, tuple | list) else ""
        raise ConfigError(f"eval_set: expected (X, y); got a {type(eval_set).__name__}{length}")


def check_same_model(before: Hyperparameters, now: Hyperparameters) -> None:
    """Raise an error if a warm start asks for another model than the existing one.

    >>> check_same_model(Hyperparameters(dim=16), Hyperparameters(dim=0, lr=1e-3))
    >>> check_same_model(Hyperparameters(dim=16), Hyperparameters(dim=32))
    Traceback (most recent call last):
    softlook.base.errors.ConfigError: a warm start continues with the existing model: expected dim=16, got dim=32...
    """
    for name in WARM_START_FIXED:
        old, new = getattr(before, name), getattr(now, name)
        is_open = (name in AUTO_SIZES and not new) or (name in AUTO_DROPOUT and new is None)
        if old != new and not is_open:
            raise _warm_start_error("the existing model", f"{name}={old!r}", f"{name}={new!r}")


def check_same_column_types(known: Mapping[str, str], given: Mapping[str, str]) -> None:
    """Raise an error if a warm start gives a column another type."""
    for name, column_type in given.items():
        if known[name] != column_type:
            expected = f"{name!r} as {known[name]!r}"
            raise _warm_start_error("the existing preprocessing", expected, repr(column_type))


def _warm_start_error(what: str, expected: str, got: str) -> ConfigError:
    return ConfigError(
        f"a warm start continues with {what}: expected {expected}, got {got}. "
        "Keep the value, or start anew with warm_start=False."
    )


def _to_table(X: Any) -> Any:
    """Convert what is almost a table; raise an error for what is none."""
    if issparse(X):
        return _to_dense(X)
    X = normalize_table(nw.to_native(X, pass_through=True))
    if isinstance(X, pa.Table):
        return _decode_runs(X)
    if isinstance(X, np.ma.MaskedArray):
        unmasked = X.data.astype(object)
        unmasked[np.ma.getmaskarray(X)] = None
        return unmasked
    if isinstance(X, np.ndarray) and X.dtype.kind == "T":  # scikit-learn does not support numpy's StringDType yet
        return X.astype(object)
    _check_not_records(X)
    return X


def _to_dense(X: Any) -> np.ndarray:
    """A sparse matrix as an array: every column becomes a token anyway."""
    rows, columns = X.shape
    if 8 * rows * columns > MAX_DENSE_BYTES:
        raise DataError(
            f"expected a sparse X of at most {MAX_DENSE_BYTES >> 30} GiB as a dense one; got {rows:,} x {columns:,}",
            help="reduce its columns first, for example by sklearn.decomposition.TruncatedSVD",
        )
    return X.toarray()


def _decode_runs(table: pa.Table) -> pa.Table:
    """Decode run-end encoded columns, which pyarrow cannot index."""
    for index, field in enumerate(table.schema):
        if pa.types.is_run_end_encoded(field.type):
            table = table.set_column(index, field.name, pc.run_end_decode(table.column(index)))
    return table


def _check_not_records(X: Any) -> None:
    is_list = isinstance(X, list | tuple) and len(X) > 0 and isinstance(X[0], Mapping)
    if is_list or isinstance(X, Mapping) or getattr(getattr(X, "dtype", None), "names", None):
        kind = "a list of dicts" if is_list else "a dict" if isinstance(X, Mapping) else "a structured array"
        raise DataError(f"expected a table in X, got {kind}", help="convert it: pandas.DataFrame(X)")


def _check_not_name(role: str, value: Any) -> None:
    if isinstance(value, str):
        raise TypeError(
            f"{role} may be a column name, {value!r:.80}, only if X is chunked, as from a path. For a table in memory "
            f"pass the column: {role}=X[{value!r:.80}], and X without it."
        )


def _check_present(estimator: Any, y: Any) -> Any:
    if y is None:
        name = type(estimator).__name__
        raise ValueError(f"This {name} estimator requires y to be passed, but the target y is None.")
    if issparse(y):
        raise TypeError("y is sparse; expected a dense array. Use y.toarray().")
    _check_not_name("y", y)
    if isinstance(y, np.ma.MaskedArray) and np.ma.is_masked(y):  # pandas' masks are checked later
        raise ValueError("Input y contains NaN: some of it is masked. Remove these rows.")
    return y


def _to_numpy(y: Any) -> Any:
    """Series and frames as numpy; anything else unchanged."""
    if nw.dependencies.is_into_series(y):
        return nw.from_native(y, series_only=True).to_numpy()
    if nw.dependencies.is_into_dataframe(y):
        return nw.from_native(y, eager_only=True).to_numpy()
    return y


def _validate_indicators(X: Any, y: Any) -> np.ndarray:
    y = np.asarray(y)
    if not np.isin(y, (0, 1)).all():
        raise DataError(
            f"expected 0 or 1 for each of {y.shape[1]} labels per row, got {np.unique(y).tolist()!r:.80}",
            help="one label per row is an array of shape (N,)",
        )
    check_consistent_length(X, y)
    return y.astype(np.int64)


def _check_label_type(y: np.ndarray) -> None:
    if y.dtype.kind == "f":
        assert_all_finite(y, input_name="y")
    labels = y.tolist() if y.dtype.kind == "O" else []
    if any(map(is_missing, labels)) or (y.dtype.kind in TIME_KINDS and np.isnat(y).any()):
        raise ValueError("Input y contains NaN or None. Remove rows without a label.")
    if len({isinstance(label, str) for label in labels}) > 1:  # strings and numbers have no common order
        types = sorted({type(label).__name__ for label in labels})
        raise DataError(f"expected labels of one type, got {' and '.join(types)}")
    if labels and not isinstance(y[0], str):  # scikit-learn's metrics would fail after the fit
        kind = type(y[0])
        dtype = kind.__name__ if kind in (bool, int, float) else "str"
        raise ValueError(f"Unknown label type: {kind.__name__} as a Python object. Set a dtype: y.astype({dtype}).")
