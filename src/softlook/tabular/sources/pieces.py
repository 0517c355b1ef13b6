"""Tables that come in pieces: files by path, or frames one after another, as often as they are needed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import narwhals as nw
import numpy as np
import pyarrow as pa

from softlook.base.errors import DataError
from softlook.data.files import find
from softlook.tabular.sources.arrow import as_arrow, pc
from softlook.tabular.sources.files import ARROW, PARQUET, read_table
from softlook.tabular.sources.frames import read_frame
from softlook.tabular.sources.parsing import written
from softlook.tabular.sources.text_files import ending_of
from softlook.tabular.wording import named

ARRAYS = ("__array__", "__array_interface__", "shape", "columns", "collect")
"""What has one of these is a table already, or will tell what it lacks."""


def is_pieces(X: Any) -> bool:
    """Whether this is a path, paths, frames one after another, or a function that gives such; and not a table itself.

    >>> is_pieces("people.csv"), is_pieces([pa.table({"a": [1]})]), is_pieces(lambda: []), is_pieces([[1, 2]])
    (True, True, True, False)
    """
    if isinstance(X, str | Path):
        return True
    if isinstance(X, list | tuple):
        return bool(X) and (all(isinstance(one, str | Path) for one in X) or all(map(_is_frame, X)))
    if _is_frame(X) or isinstance(X, type | bytes | Mapping | set | frozenset):
        return False
    return callable(X) or hasattr(X, "to_batches") or (hasattr(X, "__iter__") and not _is_array(X))


@dataclass(frozen=True)
class Pieces:
    """A table in pieces, from the first one anew whenever it is gone through."""

    again: Callable[[], Iterator[Any]]
    is_text: bool = False
    """Whether it comes from files that do not say what a number is: whole ones look like others."""

    @staticmethod
    def of(X: Any, folder: Path | None = None) -> "Pieces":
        """What can be gone through once only is put into a folder on its first way."""
        if is_paths(X):
            return Pieces(lambda: read_table(X), is_text=any(map(_is_text, find(X))))
        if callable(X):
            return Pieces(lambda: iter(cast(Any, X())))
        if hasattr(X, "to_batches"):
            return Pieces(lambda: iter(X.to_batches()))
        if iter(X) is X and folder is not None:
            return _put_aside(X, folder)
        return Pieces(lambda: iter(X))

    def __iter__(self) -> Iterator[Any]:
        """Those with rows, as they come; one at least."""
        is_empty = True
        for piece in self.again():
            if _rows(piece):
                is_empty = False
                yield piece
        if is_empty:
            raise DataError("no rows came: the table is empty")

    def tables(self) -> Iterator[pa.Table]:
        """The same, all as pyarrow's; their columns must have names."""
        return map(as_table, self)

    def apart(self, roles: "Roles") -> Iterator[tuple[pa.Table, Any, np.ndarray | None]]:
        """Of each, what is read, what is wanted, and what rows weigh where that is told."""
        return (roles.apart(table, is_text=self.is_text) for table in self.tables())

    def whole(self, most: int) -> pa.Table | None:
        """All as one table, where it takes up no more than so many bytes."""
        found: list[pa.Table] = []
        taken = 0
        for table in self.tables():
            found.append(table)
            taken += table.nbytes
            if taken > most:
                return None
        return joined(found)


@dataclass(frozen=True)
class Roles:
    """Which columns of a table say what is wanted, and what a row weighs; all others are read."""

    target: str | list[str]
    weight: str | None = None

    @staticmethod
    def of(y: Any, sample_weight: Any) -> "Roles":
        """Names, as they must be for a table in pieces."""
        names = y if isinstance(y, str) else list(y) if isinstance(y, list | tuple) else None
        if names is None or not all(isinstance(name, str) for name in names):
            raise TypeError(
                "X comes in pieces, so that y must be the name of its target column (or a list of names); "
                f"{type(y).__name__} came"
            )
        if sample_weight is not None and not isinstance(sample_weight, str):
            raise TypeError("X comes in pieces, so that sample_weight must be the name of one of its columns")
        return Roles(names, sample_weight)

    def apart(self, table: pa.Table, *, is_text: bool) -> tuple[pa.Table, Any, np.ndarray | None]:
        """What is read, what is wanted, and what rows weigh where that is told."""
        own = [self.target] if isinstance(self.target, str) else self.target
        others = [*own, *([self.weight] if self.weight else [])]
        absent = [name for name in others if name not in table.column_names]
        if absent:
            raise DataError(f"there is no column {named(absent)}; there are {named(table.column_names)}")
        if isinstance(self.target, str):
            wanted: Any = table.column(self.target)
            wanted = _whole_numbers(wanted) if is_text else wanted
        else:
            wanted = table.select(own)
        weight = None if self.weight is None else _numbers(self.weight, table.column(self.weight))
        return table.drop_columns(others), wanted, weight


def as_table(piece: Any) -> pa.Table:
    """Any frame whose columns have names, as pyarrow's."""
    if isinstance(piece, pa.Table):
        return piece
    frame = read_frame(piece)
    if not frame.has_names:
        raise DataError("the columns of a piece have no names, and one of them is to be the target")
    columns = [frame.column(place) for place in range(len(frame.names))]
    return pa.table([as_arrow(column) for column in columns], names=list(frame.names))


def with_columns(piece: Any, names: list[str]) -> Any:
    """A frame with these columns alone where it has them all, else as it is."""
    if isinstance(piece, pa.RecordBatch):
        piece = pa.Table.from_batches([piece])
    if not nw.dependencies.is_into_dataframe(piece):
        return piece
    frame = nw.from_native(piece, eager_only=True)
    return frame.select(names).to_native() if set(names) <= set(frame.columns) else piece


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Pieces as one table; a column whose pieces are of kinds that do not mix becomes words."""
    if not tables:
        raise DataError("no rows came: there is nothing to learn from")
    names = tables[0].column_names
    for table in tables:
        refuse_others(table.column_names, names)
    return pa.table([joined_column([table.column(name) for table in tables]) for name in names], names=names)


def joined_column(parts: Sequence[pa.Array | pa.ChunkedArray]) -> pa.ChunkedArray:
    """Pieces of a column as one, of the narrowest type that holds them all; where they do not mix, as words."""
    tables = [pa.table({"": part}) for part in parts]
    try:
        return pa.concat_tables(tables, promote_options="permissive").column(0)
    except (pa.ArrowException, TypeError):
        chunks = [written(chunk) for table in tables for chunk in table.column(0).chunks]
        return pa.chunked_array(chunks, pa.large_string())


def refuse_others(names: Sequence[str], first: Sequence[str]) -> None:
    """All pieces of a table have the same columns."""
    if tuple(names) != tuple(first):
        raise DataError(
            f"a piece has the columns {', '.join(names[:8])}; the first had {', '.join(first[:8])}",
            help="give all pieces the same columns in the same order",
        )


def _numbers(name: str, column: pa.ChunkedArray) -> np.ndarray:
    try:
        return column.cast(pa.float64()).to_numpy()
    except (pa.ArrowException, ValueError):
        raise DataError(f"sample_weight is a column of numbers; {name!r} holds {column.type}") from None


def _put_aside(frames: Iterator[Any], folder: Path) -> Pieces:
    """Frames that come but once, as files."""
    files: list[Path] = []
    for piece in frames:
        if _rows(piece):
            table = as_table(piece)
            files.append(folder / f"piece-{len(files)}.arrow")
            with pa.OSFile(str(files[-1]), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as stream:
                stream.write_table(table)
    return Pieces(lambda: map(_read, files))


def _read(file: Path) -> pa.Table:
    with pa.OSFile(str(file), "rb") as source, pa.ipc.open_stream(source) as stream:
        return stream.read_all()


def _whole_numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """0.0 and 1.0 as 0 and 1: files of text have no other way to write whole numbers."""
    if not pa.types.is_floating(column.type) or column.null_count:
        return column
    is_whole = pc.all(pc.equal(pc.floor(column), column)).as_py() and pc.max(pc.abs(column)).as_py() < 2**53
    return column.cast(pa.int64()) if is_whole else column


def _is_text(file: Path) -> bool:
    return ending_of(file) not in (*PARQUET, *ARROW)


def is_paths(X: Any) -> bool:
    """Whether this names files, one or several."""
    return isinstance(X, str | Path) or (isinstance(X, list | tuple) and bool(X) and isinstance(X[0], str | Path))


def _is_frame(X: Any) -> bool:
    return isinstance(X, pa.RecordBatch) or nw.dependencies.is_into_dataframe(X)


def _is_array(X: Any) -> bool:
    return any(hasattr(X, name) for name in ARRAYS)


def _rows(piece: Any) -> int:
    if isinstance(piece, pa.Table | pa.RecordBatch):
        return piece.num_rows
    return len(piece) if hasattr(piece, "__len__") else 1  # what is no table is told so by who reads it
