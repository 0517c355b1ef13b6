"""A table, whatever it came in: pandas, polars, pyarrow and their kin through narwhals, numpy, or a list of rows."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from softlook.base.errors import DataError
from softlook.tabular.sources.cells import Cells
from softlook.tabular.sources.objects import array_of
from softlook.tabular.wording import named


@dataclass(frozen=True)
class Frame:
    """A table seen as columns, each read when it is asked for.

    >>> frame = read_frame([[1, "S"], [2, None]])
    >>> frame.names, frame.rows, frame.cells(1).missing().tolist()
    (('x0', 'x1'), 2, [False, True])
    """

    names: tuple[str, ...]
    """One for each column: its own, or x0, x1, ... where they have none."""
    rows: int
    column: Callable[[int], np.ndarray | pa.Array | pa.ChunkedArray]
    has_names: bool = False
    matrix: np.ndarray | None = None
    """All at once, where all of it is numpy's numbers."""

    def cells(self, place: int) -> Cells:
        """The column at a place."""
        return Cells(self.names[place], self.column(place))


def read_frame(X: Any) -> Frame:
    """A table of any of the sorts above as a frame, with at least one row and one column."""
    frame = X if isinstance(X, Frame) else _framed(X)
    refuse_empty(frame.rows, len(frame.names))
    return frame


def refuse_empty(rows: int, columns: int) -> None:
    """A table has a row and a column at least."""
    if not rows or not columns:
        # scikit-learn's own words, which people know and its checks look for
        what = "sample" if columns else "feature"
        raise DataError(f"Found array with 0 {what}(s) (shape=({rows}, {columns})) while a minimum of 1 is required.")


def _framed(X: Any) -> Frame:
    if hasattr(X, "toarray") and hasattr(X, "nnz"):
        raise TypeError(
            "Sparse data was passed for X, but dense data is required. Use X.toarray(), if it fits in memory"
        )
    if isinstance(X, list | tuple):
        return _of_rows(X)
    if isinstance(X, np.ndarray):
        return _of_array(X)
    if isinstance(X, pa.RecordBatch):
        X = pa.Table.from_batches([X])
    refuse_unread(X)
    refuse_twins(names_of(X))
    try:
        table = nw.from_native(X, eager_only=True, pass_through=True)
    except TypeError:
        table = X
    if isinstance(table, nw.DataFrame):
        return _of_table(table)
    return _of_array(np.asarray(X))


def _of_table(table: "nw.DataFrame[Any]") -> Frame:
    has_names = all(isinstance(name, str) for name in table.columns)
    names = tuple(table.columns) if has_names else _numbered(table.shape[1])
    columns = list(table.iter_columns())
    return Frame(names, table.shape[0], lambda place: _arrow(names[place], columns[place]), has_names)


def _arrow(name: str, column: "nw.Series[Any]") -> pa.Array | np.ndarray:
    if column.dtype == nw.Object:
        return array_of(name, column.to_list())
    try:
        found = column.to_arrow()
        kind = found.type.value_type if pa.types.is_dictionary(found.type) else found.type
        return (
            _spoken(column)
            if isinstance(kind, pa.BaseExtensionType) and pa.types.is_struct(kind.storage_type)
            else found
        )
    except (pa.ArrowException, TypeError):  # sparse columns, integers of 128 bits and the like
        return array_of(name, column.to_list())


def _spoken(column: "nw.Series[Any]") -> pa.Array:
    """Intervals, as pandas cuts numbers into: each is a category, and they have an order where it says so."""
    levels = column.to_native().astype("category").cat
    codes = levels.codes.to_numpy()
    words = pa.array(map(str, levels.categories), pa.large_string())
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), words, ordered=levels.ordered)


def refuse_unread(X: Any) -> None:
    """A table that is a plan of one is no table yet."""
    if hasattr(X, "collect"):
        raise TypeError("X is a table that is not read yet. Call X.collect() first")


def names_of(X: Any) -> list[Any]:
    """What a frame calls its columns; nothing where it is no frame."""
    return list(getattr(X, "column_names", None) or getattr(X, "columns", ()))


def refuse_twins(names: Iterable[Any], file: Path | None = None) -> None:
    """Columns go by their names."""
    twins = [str(name) for name, often in Counter(names).items() if often > 1]
    if twins:
        said = f"more than one column is named {named(twins)}"
        raise DataError(said, file=file, line=None if file is None else 1, help="give each column its own name")


def _of_rows(rows: list[Any] | tuple[Any, ...]) -> Frame:
    widths = {len(row) if isinstance(row, list | tuple | np.ndarray) else -1 for row in rows}
    if -1 in widths:
        return _of_array(np.asarray(rows, dtype=object))
    if len(widths) > 1:
        raise DataError(f"the rows have {min(widths)} to {max(widths)} cells", help="give each row the same number")
    names = _numbered(max(widths, default=0))
    columns = list(zip(*rows, strict=True))
    return Frame(names, len(rows), lambda place: array_of(names[place], list(columns[place])))


def _of_array(array: np.ndarray) -> Frame:
    if array.ndim != 2:
        raise DataError(
            _flat(array) if array.ndim < 2 else f"Found array with dim {array.ndim}, while dim <= 2 is required."
        )
    if array.dtype.kind == "c":
        raise DataError("Complex data not supported: a number in a table is a real one")
    names = _numbered(array.shape[1])
    if array.dtype.kind in "biuf":
        return Frame(names, len(array), lambda place: array[:, place], matrix=array)
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    if array.dtype.kind in "mM":
        array = _in_known_units(array)
    if array.dtype.kind in "UmM":
        return Frame(names, len(array), lambda place: pa.array(array[:, place]))
    return Frame(names, len(array), lambda place: array_of(names[place], list(array[:, place])))


def _in_known_units(array: np.ndarray) -> np.ndarray:
    """numpy counts time in years, hours or femtoseconds too, pyarrow in seconds and some of their parts."""
    kind, unit = array.dtype.kind, np.datetime_data(array.dtype)[0]
    if unit in ("s", "ms", "us", "ns") or (kind, unit) == ("M", "D"):
        return array
    return array.astype(f"{kind}8[{'ns' if unit in ('ps', 'fs', 'as') else 's'}]")


def _flat(array: np.ndarray) -> str:
    return (
        f"Expected 2D array, got {'scalar' if array.ndim == 0 else '1D'} array instead. Reshape your data: "
        "array.reshape(-1, 1) if it is one column, array.reshape(1, -1) if it is one row"
    )


def _numbered(count: int) -> tuple[str, ...]:
    return tuple(f"x{place}" for place in range(count))
