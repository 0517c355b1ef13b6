"""Is what came to an estimator what it can work with? The words are scikit-learn's, where it has some."""

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
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

from softlook.base.errors import ConfigError, DataError
from softlook.tabular.encoding.targets import TIMES
from softlook.tabular.sources.arrow import pc
from softlook.tabular.sources.frames import names_of, refuse_empty, refuse_twins, refuse_unread
from softlook.tabular.sources.objects import is_missing
from softlook.tabular.wording import named

NUMBER = (int, float, np.integer, np.floating)


def checked_frame(estimator: Any, X: Any, *, reset: bool) -> Any:
    """A frame as it is, or anything like an array as one; names and number of columns are learned, or compared."""
    X = _tabled(X)
    if nw.dependencies.is_into_dataframe(X):
        X = validate_data(estimator, X, reset=reset, skip_check_array=True)
        refuse_empty(*X.shape)
        return X
    if isinstance(X, list | tuple):
        X = np.array(X, dtype=object)  # else numbers beside words would become words
    return validate_data(estimator, X, reset=reset, dtype=None, ensure_all_finite="allow-nan", accept_sparse=False)


def checked_labels(estimator: Any, X: Any, y: Any) -> np.ndarray:
    """(N,) labels of one kind, none of them missing."""
    y = column_or_1d(_plain(_there(estimator, y)), warn=True)
    _refuse_missing(y)
    _refuse_mixed(y)
    _refuse_objects(y)
    check_classification_targets(y)
    check_consistent_length(X, y)
    return y


def checked_amounts(estimator: Any, X: Any, y: Any) -> np.ndarray:
    """(N,) or (N, K) finite numbers."""
    y = check_array(_plain(_there(estimator, y)), ensure_2d=False, dtype="numeric", input_name="y", estimator=estimator)
    if y.ndim == 2 and not y.shape[1]:
        raise DataError("there is nothing to predict: y has no columns")
    if y.dtype.kind in TIMES:
        raise DataError(
            "y is to hold numbers; times came",
            help="count them in a unit of your choice, as (y - y.min()) / numpy.timedelta64(1, 'D')",
        )
    check_consistent_length(X, y)
    return y.astype(np.float64)


def checked_weight(sample_weight: Any, X: Any) -> np.ndarray:
    """(N,) weights from 0 up, ones where none came."""
    _refuse_name("sample_weight", sample_weight)
    rows = np.empty((X.shape[0], 1))  # all that is looked at is how many there are
    weight = _check_sample_weight(sample_weight, rows, dtype=np.float64, ensure_non_negative=True)
    if not weight.any():
        raise ValueError("sample weights are all zero: nothing would be learned from any row")
    return weight


def checked_class_weights(told: Mapping[Any, float], classes: Sequence[Any]) -> np.ndarray:
    """(classes,) what each weighs: 1 where it is not told."""
    strange, unnamed = [name for name in told if name not in classes], [name for name in classes if name not in told]
    if strange and unnamed:  # where all have a weight, others may be told too: they are not among these rows
        raise ConfigError(f"class_weight names {strange[0]!r:.80}, which is no class. The classes are {named(classes)}")
    for name, weight in told.items():
        if not (isinstance(weight, Real) and 0 <= weight < np.inf):
            raise ConfigError(f"class_weight: a weight is a number from 0 up; {name!r:.80} has {weight!r:.80}")
    return np.array([told.get(name, 1.0) for name in classes], dtype=np.float64)


def check_parameters(estimator: Any) -> None:
    """That what all estimators are told makes sense; recipes look after their own."""
    share, limit = estimator.validation_share, estimator.time_limit
    if not (isinstance(share, NUMBER) and 0 <= share < 1):
        raise ConfigError(f"validation_share is a share from 0 up to and without 1; {share!r} came")
    if limit is not None and not (isinstance(limit, NUMBER) and limit > 0):
        raise ConfigError(f"time_limit is a number of seconds above 0; {limit!r} came")
    room = estimator.memory_limit
    if room is not None and not (isinstance(room, NUMBER) and room > 0):
        raise ConfigError(f"memory_limit is a number of bytes above 0; {room!r} came")
    if estimator.n_jobs is not None and not (isinstance(estimator.n_jobs, int | np.integer) and estimator.n_jobs):
        raise ConfigError(f"n_jobs is a number of cores, or -1 for all of them; {estimator.n_jobs!r} came")


def check_validation(validation: Any) -> None:
    """That rows to stop by come with what is wanted of them."""
    if validation is not None and not (isinstance(validation, tuple | list) and len(validation) == 2):
        many = f" of {len(validation)}" if isinstance(validation, tuple | list) else ""
        raise ConfigError(f"validation is (X, y), rows to stop by; a {type(validation).__name__}{many} came")


def _tabled(X: Any) -> Any:
    """What is nearly a table made one, and what is none refused."""
    X = nw.to_native(X, pass_through=True)
    refuse_unread(X)
    if isinstance(X, pa.RecordBatch):
        X = pa.Table.from_batches([X])
    refuse_twins(names_of(X))
    if isinstance(X, pa.Table):
        return _decoded(X)
    if isinstance(X, np.ma.MaskedArray):
        found = X.data.astype(object)
        found[np.ma.getmaskarray(X)] = None
        return found
    if isinstance(X, np.ndarray) and X.dtype.kind == "T":  # scikit-learn does not know numpy's own strings yet
        return X.astype(object)
    _refuse_records(X)
    return X


def _decoded(table: pa.Table) -> pa.Table:
    """Without runs, of which pyarrow cannot take some rows."""
    for place, field in enumerate(table.schema):
        if pa.types.is_run_end_encoded(field.type):
            table = table.set_column(place, field.name, pc.run_end_decode(table.column(place)))
    return table


def _refuse_records(X: Any) -> None:
    is_list = isinstance(X, list | tuple) and len(X) > 0 and isinstance(X[0], Mapping)
    if issparse(X):
        return  # one sort of them is a dict too; all are refused in scikit-learn's own words
    if is_list or isinstance(X, Mapping) or getattr(getattr(X, "dtype", None), "names", None):
        what = "a list of dicts" if is_list else "a dict" if isinstance(X, Mapping) else "a structured array"
        raise DataError(f"X is to be a table; {what} came", help="make a table of it: pandas.DataFrame(X)")


def _refuse_name(role: str, given: Any) -> None:
    if isinstance(given, str):
        raise TypeError(
            f"{role} is the name of a column, {given!r:.80}, only where X comes in pieces, as from a path. Of a table, "
            f"give the column: {role}=X[{given!r:.80}], and X without it."
        )


def _there(estimator: Any, y: Any) -> Any:
    if y is None:
        name = type(estimator).__name__
        raise ValueError(f"This {name} estimator requires y to be passed, but the target y is None.")
    if issparse(y):
        raise TypeError("y is sparse, and wanted as an array. Use y.toarray().")
    _refuse_name("y", y)
    if isinstance(y, np.ma.MaskedArray) and np.ma.is_masked(y):  # pandas has masks too, and is asked later
        raise ValueError("Input y contains NaN: some of it is masked. Leave these rows out.")
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
    is_absent = y.dtype.kind in TIMES and np.isnat(y).any()
    if is_absent or (y.dtype.kind == "O" and any(map(is_missing, y.tolist()))):
        raise ValueError("Input y contains NaN, or None: a row without a label cannot be learned from. Leave it out.")


def _refuse_mixed(y: np.ndarray) -> None:
    """Words beside numbers have no order."""
    if y.dtype.kind == "O" and len({isinstance(label, str) for label in y.tolist()}) > 1:
        kinds = sorted({type(label).__name__ for label in y.tolist()})
        raise DataError(f"labels are of one kind; these are of {' and '.join(kinds)}")


def _refuse_objects(y: np.ndarray) -> None:
    """scikit-learn's scores know words alone among Python's objects, and would fail after the fit."""
    if y.dtype.kind == "O" and len(y) and not isinstance(y[0], str):
        kind = type(y[0])
        own = kind.__name__ if kind in (bool, int, float) else "str"
        raise ValueError(f"Unknown label type: {kind.__name__} as a Python object. Give y a type: y.astype({own}).")
