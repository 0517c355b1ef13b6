"""Chunked tables: paths, or frames one after another; and where in a file a cell does not match its column."""

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, cast

import narwhals as nw
import numpy as np
import pyarrow as pa

from softlook.base.errors import DataError
from softlook.data.files import PathOrPaths, find_files
from softlook.tabular.formatting import join_names
from softlook.tabular.io.arrow import pc, to_arrow, to_strings
from softlook.tabular.io.column import CellError
from softlook.tabular.io.files import ARROW, PARQUET, read_table
from softlook.tabular.io.frames import to_frame
from softlook.tabular.io.objects import holds_objects
from softlook.tabular.io.text_files import file_extension, read_rows

ARRAY_ATTRIBUTES = ("__array__", "__array_interface__", "shape", "columns", "collect")
"""An object with one of these is a table itself (or is rejected as one), not an iterable of tables."""


def is_chunked(X: Any) -> bool:
    """Whether X is a path, paths, an iterable of frames or a function that returns one, and not a table itself.

    >>> is_chunked("people.csv"), is_chunked([pa.table({"a": [1]})]), is_chunked(lambda: []), is_chunked([[1, 2]])
    (True, True, True, False)
    """
    if isinstance(X, str | Path):
        return True
    if isinstance(X, list | tuple):
        return bool(X) and (all(isinstance(one, str | Path) for one in X) or all(map(_is_frame, X)))
    if _is_frame(X) or isinstance(X, type | bytes | Mapping | set | frozenset):
        return False
    if callable(X) or hasattr(X, "to_batches"):
        return True
    return hasattr(X, "__iter__") and not any(hasattr(X, name) for name in ARRAY_ATTRIBUTES)


def is_paths(X: Any) -> bool:
    """Whether X is a path or a list of paths."""
    return isinstance(X, str | Path) or (isinstance(X, list | tuple) and bool(X) and isinstance(X[0], str | Path))


@dataclass(frozen=True)
class ChunkedTable:
    """A table in chunks that can be iterated over repeatedly."""

    open_chunks: Callable[[], Iterator[Any]]
    is_text: bool = False
    """Whether the chunks come from text files, which do not distinguish integers from floats."""

    @staticmethod
    def of(X: Any, folder: Path | None = None) -> "ChunkedTable":
        """X as a chunked table; a one-shot iterator is spilled to `folder`."""
        if is_paths(X):
            return ChunkedTable(lambda: read_table(X), is_text=any(map(_is_text, find_files(X))))
        if callable(X):
            return ChunkedTable(lambda: iter(cast(Any, X())))
        if hasattr(X, "to_batches"):
            return ChunkedTable(lambda: iter(X.to_batches()))
        if iter(X) is X and folder is not None:
            return _spill(X, folder)
        return ChunkedTable(lambda: iter(X))

    def __iter__(self) -> Iterator[Any]:
        """The non-empty chunks; raises an error if there is none."""
        is_empty = True
        for chunk in self.open_chunks():
            if _num_rows(chunk):
                is_empty = False
                yield chunk
        if is_empty:
            raise DataError("the table is empty: got no rows")

    def tables(self) -> Iterator[pa.Table]:
        """The chunks as pyarrow tables; their columns must have names."""
        return map(to_arrow_table, self)

    def split(self, roles: "TargetColumns") -> Iterator[tuple[pa.Table, Any, np.ndarray | None]]:
        """Features, target and sample weights of each chunk."""
        return (roles.split(table, is_text=self.is_text) for table in self.tables())

    def load(self, max_bytes: int) -> pa.Table | None:
        """The whole table, if it has at most so many bytes."""
        tables: list[pa.Table] = []
        size = 0
        for table in self.tables():
            tables.append(table)
            size += table.nbytes
            if size > max_bytes:
                return None
        return concat_tables(tables)


@dataclass(frozen=True)
class TargetColumns:
    """Which columns are the target and the sample weight; all others are features."""

    target: str | list[str]
    weight: str | None = None

    @staticmethod
    def of(y: Any, sample_weight: Any) -> "TargetColumns":
        """Column names, which is what a chunked table requires for y and sample_weight."""
        names = y if isinstance(y, str) else list(y) if isinstance(y, list | tuple) else None
        if names is None or not all(isinstance(name, str) for name in names):
            raise TypeError(
                f"X is chunked, so y must be the name of its target column (or a list of names); got {type(y).__name__}"
            )
        if sample_weight is not None and not isinstance(sample_weight, str):
            raise TypeError("X is chunked, so sample_weight must be the name of one of its columns")
        return TargetColumns(names, sample_weight)

    def split(self, table: pa.Table, *, is_text: bool) -> tuple[pa.Table, Any, np.ndarray | None]:
        """Features, target and sample weights of a table."""
        own = [self.target] if isinstance(self.target, str) else self.target
        others = [*own, *([self.weight] if self.weight else [])]
        absent = [name for name in others if name not in table.column_names]
        if absent:
            raise DataError(f"there is no column {join_names(absent)}; columns: {join_names(table.column_names)}")
        if isinstance(self.target, str):
            target: Any = table.column(self.target)
            target = _to_integers(target) if is_text else target
        else:
            target = table.select(own)
        weight = None if self.weight is None else _to_weights(self.weight, table.column(self.weight))
        return table.drop_columns(others), target, weight


def to_arrow_table(chunk: Any) -> pa.Table:
    """A frame with named columns as a pyarrow table."""
    if isinstance(chunk, pa.Table):
        return chunk
    frame = to_frame(chunk)
    if not frame.has_names:
        raise DataError("the columns of a chunk have no names, and one of them must be the target")
    arrays = [frame.get_array(index) for index in range(len(frame.names))]
    return pa.table([to_arrow(array) for array in arrays], names=list(frame.names))


def select_columns(chunk: Any, names: list[str]) -> Any:
    """A frame with only these columns, if it has them all; otherwise the frame itself."""
    if isinstance(chunk, pa.RecordBatch):
        chunk = pa.Table.from_batches([chunk])
    if not nw.dependencies.is_into_dataframe(chunk):
        return chunk
    frame = nw.from_native(chunk, eager_only=True)
    return frame.select(names).to_native() if set(names) <= set(frame.columns) else chunk


def concat_tables(tables: Sequence[pa.Table]) -> pa.Table:
    """Chunks as one table; a column whose chunks have incompatible types becomes strings."""
    if not tables:
        raise DataError("got no rows: there is nothing to learn from")
    names = tables[0].column_names
    for table in tables:
        check_same_columns(table.column_names, names)
    return pa.table([concat_columns([table.column(name) for table in tables]) for name in names], names=names)


def concat_columns(parts: Sequence[pa.Array | pa.ChunkedArray]) -> pa.ChunkedArray:
    """Parts of a column as one, of the narrowest common type; strings if there is none."""
    tables = [pa.table({"": part}) for part in parts]
    try:
        return pa.concat_tables(tables, promote_options="permissive").column(0)
    except (pa.ArrowException, TypeError):
        chunks = [to_strings(chunk) for table in tables for chunk in table.column(0).chunks]
        return pa.chunked_array(chunks, pa.large_string())


def check_same_columns(names: Sequence[str], expected: Sequence[str]) -> None:
    """Raise an error if a chunk has other columns than the first one."""
    if tuple(names) != tuple(expected):
        raise DataError(
            f"a chunk has the columns {', '.join(names[:8])}; the first had {', '.join(expected[:8])}",
            help="give all chunks the same columns in the same order",
        )


def _to_weights(name: str, column: pa.ChunkedArray) -> np.ndarray:
    try:
        return column.cast(pa.float64()).to_numpy()
    except (pa.ArrowException, ValueError):
        raise DataError(f"sample_weight must be a numeric column; {name!r} holds {column.type}") from None


def _spill(frames: Iterator[Any], folder: Path) -> ChunkedTable:
    """Frames of a one-shot iterator as Arrow files."""
    files: list[Path] = []
    for chunk in frames:
        if _num_rows(chunk):
            table = to_arrow_table(chunk)
            files.append(folder / f"chunk-{len(files)}.arrow")
            with pa.OSFile(str(files[-1]), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as stream:
                stream.write_table(table)
    return ChunkedTable(lambda: map(_read, files))


def _read(file: Path) -> pa.Table:
    with pa.OSFile(str(file), "rb") as source, pa.ipc.open_stream(source) as stream:
        return stream.read_all()


def _to_integers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """0.0 and 1.0 as 0 and 1: text files cannot distinguish them."""
    if not pa.types.is_floating(column.type) or column.null_count:
        return column
    is_integer = pc.all(pc.equal(pc.floor(column), column)).as_py() and pc.max(pc.abs(column)).as_py() < 2**53
    return column.cast(pa.int64()) if is_integer else column


def _is_text(file: Path) -> bool:
    return file_extension(file) not in (*PARQUET, *ARROW)


def _has_lines(file: Path) -> bool:
    """Whether each row is a line, or a few lines, of a text file."""
    return _is_text(file) and not holds_objects(file)


def _is_frame(X: Any) -> bool:
    return isinstance(X, pa.RecordBatch) or nw.dependencies.is_into_dataframe(X)


def _num_rows(chunk: Any) -> int:
    if isinstance(chunk, pa.Table | pa.RecordBatch):
        return chunk.num_rows
    return len(chunk) if hasattr(chunk, "__len__") else 1  # anything else is rejected when it is read


# --- cell errors ------------------------------------------------------------------------------------------------------


@contextmanager
def locate_cell_errors(given: PathOrPaths) -> Iterator[None]:
    """Re-raise a `CellError` with the file and line of its cell; files are searched in order.

    >>> _ = Path("people.csv").write_text('name,age\\n"Ann\\nLee",31\\nBob,old\\n')
    >>> with locate_cell_errors([Path("people.csv")]):
    ...     raise CellError("column 'age': expected numbers, got 'old'", name="age", cell="old", row=1)
    Traceback (most recent call last):
    softlook.base.errors.DataError: people.csv:4: column 'age': expected numbers, got 'old'
    """
    try:
        yield
    except CellError as error:
        raise _locate(error, find_files(given)) from None


def locate_in_files(X: Any) -> AbstractContextManager[None]:
    """`locate_cell_errors` if X is a path or paths; otherwise a null context."""
    return locate_cell_errors(X) if is_paths(X) else nullcontext()


def _locate(error: CellError, files: Sequence[Path]) -> DataError:
    for path in files:
        is_binary = not _has_lines(path)
        with suppress(csv.Error, ValueError):  # other errors in the file do not matter here
            for number, cell in _cells(path, error.name):
                if _equals(cell, error.cell):
                    message = f"{error.message} in row {number:,}, counted from 1" if is_binary else error.message
                    return DataError(message, file=path, line=None if is_binary else number, help=error.help)
    return error


def _cells(path: Path, name: str) -> Iterator[tuple[int, Any]]:
    """A column's cells, each with its line in a text file, or with its row."""
    if _has_lines(path):
        return ((line, row.get(name)) for line, row in read_rows(path))
    return zip(count(1), (cell for chunk in read_table(path) for cell in chunk.column(name).to_pylist()), strict=False)


def _equals(cell: Any, expected: str) -> bool:
    """As strings, or as numbers: infinity has several spellings."""
    if str(cell) == expected:
        return True
    try:
        return float(cell) == float(expected)
    except (TypeError, ValueError):
        return False
