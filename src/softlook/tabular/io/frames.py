"""Tables from any library: pandas, polars, pyarrow, numpy, lists.

Data frames are read through narwhals.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from softlook.base.errors import DataError
from softlook.tabular.formatting import join_names
from softlook.tabular.io.arrow import format_number
from softlook.tabular.io.column import Column, mixed_timezones_error

CONVERSION_ERRORS = (pa.ArrowException, OverflowError, TypeError, ValueError)


@dataclass(frozen=True)
class Frame:
    """A table as named columns, each converted when it is accessed.

    >>> frame = to_frame([[1, "S"], [2, None]])
    >>> frame.names, frame.rows, frame.column(1).is_missing().tolist()
    (('x0', 'x1'), 2, [False, True])
    """

    names: tuple[str, ...]
    """Column names; x0, x1, ... if the table has none."""
    rows: int
    get_array: Callable[[int], np.ndarray | pa.Array | pa.ChunkedArray]
    has_names: bool = False
    matrix: np.ndarray | None = None
    """The whole table, if it is a numeric numpy array."""

    def column(self, index: int) -> Column:
        """The column at an index."""
        return Column(self.names[index], self.get_array(index))


def to_frame(X: Any) -> Frame:
    """Any supported table as a `Frame` with at least one row and one column."""
    frame = X if isinstance(X, Frame) else _convert(X)
    check_not_empty(frame.rows, len(frame.names))
    return frame


def check_not_empty(rows: int, columns: int) -> None:
    """Raise an error if a table has no rows or no columns."""
    if not rows or not columns:
        # scikit-learn's own wording, which its estimator checks look for
        what = "sample" if columns else "feature"
        raise DataError(f"Found array with 0 {what}(s) (shape=({rows}, {columns})) while a minimum of 1 is required.")


def normalize_table(X: Any) -> Any:
    """A record batch as a table, anything else unchanged; an error for a lazy frame, or two columns of one name."""
    if hasattr(X, "collect"):
        raise TypeError("X is a lazy frame. Call X.collect() first")
    X = pa.Table.from_batches([X]) if isinstance(X, pa.RecordBatch) else X
    check_unique_names(getattr(X, "column_names", None) or getattr(X, "columns", ()))
    return X


def check_unique_names(names: Iterable[Any], file: Path | None = None) -> None:
    """Raise an error if two columns have the same name."""
    duplicates = [str(name) for name, count in Counter(names).items() if count > 1]
    if duplicates:
        message = f"more than one column is named {join_names(duplicates)}"
        raise DataError(message, file=file, line=None if file is None else 1, help="give each column its own name")


def _convert(X: Any) -> Frame:
    if hasattr(X, "toarray") and hasattr(X, "nnz"):
        raise TypeError(
            "Sparse data was passed for X, but dense data is required. Use X.toarray(), if it fits in memory"
        )
    if isinstance(X, list | tuple):
        return _from_rows(X)
    if isinstance(X, np.ndarray):
        return _from_array(X)
    X = normalize_table(X)
    try:
        table = nw.from_native(X, eager_only=True, pass_through=True)
    except TypeError:
        table = X
    if isinstance(table, nw.DataFrame):
        return _from_dataframe(table)
    return _from_array(np.asarray(X))


def _from_dataframe(table: "nw.DataFrame[Any]") -> Frame:
    has_names = all(isinstance(name, str) for name in table.columns)
    names = tuple(table.columns) if has_names else _default_names(table.shape[1])
    columns = list(table.iter_columns())
    return Frame(names, table.shape[0], lambda index: _series_to_arrow(names[index], columns[index]), has_names)


def _series_to_arrow(name: str, series: "nw.Series[Any]") -> pa.Array | np.ndarray:
    if series.dtype == nw.Object:
        return from_python_values(name, series.to_list())
    try:
        array = series.to_arrow()
        dtype = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
        is_interval = isinstance(dtype, pa.BaseExtensionType) and pa.types.is_struct(dtype.storage_type)
        return _intervals_to_arrow(series) if is_interval else array
    except (pa.ArrowException, TypeError):  # sparse columns, 128-bit integers and the like
        return from_python_values(name, series.to_list())


def _intervals_to_arrow(series: "nw.Series[Any]") -> pa.Array:
    """pandas intervals (`pd.cut`) as categories, ordered if pandas says so."""
    levels = series.to_native().astype("category").cat
    codes = levels.codes.to_numpy()
    labels = pa.array(map(str, levels.categories), pa.large_string())
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), labels, ordered=levels.ordered)


def _from_rows(rows: list[Any] | tuple[Any, ...]) -> Frame:
    widths = {len(row) if isinstance(row, list | tuple | np.ndarray) else -1 for row in rows}
    if -1 in widths:
        return _from_array(np.asarray(rows, dtype=object))
    if len(widths) > 1:
        raise DataError(f"the rows have {min(widths)} to {max(widths)} cells", help="give each row the same number")
    names = _default_names(max(widths, default=0))
    columns = list(zip(*rows, strict=True))
    return Frame(names, len(rows), lambda index: from_python_values(names[index], list(columns[index])))


def _from_array(array: np.ndarray) -> Frame:
    if array.ndim > 2:
        raise DataError(f"Found array with dim {array.ndim}, while dim <= 2 is required.")
    if array.ndim < 2:
        raise DataError(
            f"Expected 2D array, got {'scalar' if array.ndim == 0 else '1D'} array instead. Reshape your data: "
            "array.reshape(-1, 1) if it is one column, array.reshape(1, -1) if it is one row"
        )
    if array.dtype.kind == "c":
        raise DataError("Complex data not supported: expected real numbers")
    names = _default_names(array.shape[1])
    if array.dtype.kind in "biuf":
        return Frame(names, len(array), lambda index: array[:, index], matrix=array)
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    if array.dtype.kind in "mM":
        array = _to_arrow_time_unit(array)
    if array.dtype.kind in "UmM":
        return Frame(names, len(array), lambda index: pa.array(array[:, index]))
    return Frame(names, len(array), lambda index: from_python_values(names[index], list(array[:, index])))


def _to_arrow_time_unit(array: np.ndarray) -> np.ndarray:
    """numpy also counts time in years, hours or femtoseconds; pyarrow in seconds down to nanoseconds."""
    kind, unit = array.dtype.kind, np.datetime_data(array.dtype)[0]
    if unit in ("s", "ms", "us", "ns") or (kind, unit) == ("M", "D"):
        return array
    return array.astype(f"{kind}8[{'ns' if unit in ('ps', 'fs', 'as') else 's'}]")


def _default_names(count: int) -> tuple[str, ...]:
    return tuple(f"x{index}" for index in range(count))


# --- Python values ---------------------------------------------------------------------------------------------------


def from_python_values(name: str, values: Sequence[Any]) -> pa.Array | np.ndarray:
    """A list of numbers, strings, dates or missing values as one array; mixed types become strings.

    >>> from_python_values("age", [3, None, 2.5]).to_pylist()
    [3.0, None, 2.5]
    >>> from_python_values("size", [38, "L", None, 39.0]).to_pylist()
    ['38', 'L', None, '39']
    """
    try:
        array = pa.array(values, from_pandas=True)
    except CONVERSION_ERRORS:
        return _from_mixed(name, [None if is_missing(value) else _to_python_time(value) for value in values])
    # pyarrow truncates datetimes to days if a day is first, and applies the first time zone to all values
    if pa.types.is_date(array.type) or pa.types.is_timestamp(array.type):
        return _from_datetimes(name, values)
    return array


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, NaT or any library's NA.

    >>> is_missing(float("nan")), is_missing(np.datetime64("NaT")), is_missing("")
    (True, True, False)
    """
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, Real | Decimal | np.datetime64) and bool(value != value)


def _from_mixed(name: str, values: Sequence[Any]) -> pa.Array | np.ndarray:
    if all(value is None or isinstance(value, date) for value in values):
        return _from_datetimes(name, values)
    if all(value is None or isinstance(value, timedelta) for value in values):
        return pa.array(values)
    if all(value is None or isinstance(value, Real | Decimal) for value in values):
        return np.array([np.nan if value is None else _to_float(value) for value in values])
    return pa.array([None if value is None else _to_string(name, value) for value in values], pa.large_string())


def _to_python_time(value: Any) -> Any:
    """numpy's datetimes and durations as Python's own: pyarrow does not know all of numpy's units."""
    is_time = isinstance(value, np.datetime64 | np.timedelta64)
    return value.astype(f"{value.dtype.kind}8[us]").item() if is_time else value


def _from_datetimes(name: str, values: Sequence[Any]) -> pa.Array:
    """Dates and datetimes; a date is its midnight, without a time zone."""
    datetimes = [None if is_missing(value) else _to_datetime(value) for value in values]
    zoned = [None if value is None else getattr(value, "tzinfo", None) is not None for value in datetimes]
    if True in zoned and False in zoned:
        raise mixed_timezones_error(name, zoned.index(True), zoned.index(False))
    return pa.array(datetimes, from_pandas=True)


def _to_datetime(value: Any) -> Any:
    return datetime(value.year, value.month, value.day) if type(value) is date else value


def _to_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return np.inf if value > 0 else -np.inf


def _to_string(name: str, value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return str(bool(value)).lower()
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, Real | Decimal):
        return format_number(float(value))
    if isinstance(value, str | date | timedelta):
        return str(value)
    # scikit-learn's own checks look for this wording
    raise TypeError(
        f"column {name!r} holds a {type(value).__name__}: each argument must be a string, a date or a number"
    )
