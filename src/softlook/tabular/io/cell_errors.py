"""File and line of a cell that does not match its column.

The file is searched only after a `CellError` was raised.
"""

import csv
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from itertools import count
from pathlib import Path
from typing import Any

from softlook.base.errors import DataError
from softlook.data.files import PathOrPaths, find_files
from softlook.tabular.io.chunked import is_paths
from softlook.tabular.io.column import CellError
from softlook.tabular.io.files import ARROW, PARQUET, read_table
from softlook.tabular.io.text_files import read_rows


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
        is_binary = path.suffix.lower() in (*PARQUET, *ARROW)
        with suppress(csv.Error, ValueError):  # other errors in the file do not matter here
            for number, cell in _binary_cells(path, error.name) if is_binary else _text_cells(path, error.name):
                if _equals(cell, error.cell):
                    message = f"{error.message} in row {number:,}, counted from 1" if is_binary else error.message
                    return DataError(message, file=path, line=None if is_binary else number, help=error.help)
    return error


def _text_cells(path: Path, name: str) -> Iterator[tuple[int, Any]]:
    return ((line, row.get(name)) for line, row in read_rows(path))


def _binary_cells(path: Path, name: str) -> Iterator[tuple[int, Any]]:
    cells = (cell for chunk in read_table(path) for cell in chunk.column(name).to_pylist())
    return zip(count(1), cells, strict=False)


def _equals(cell: Any, expected: str) -> bool:
    """As strings, or as numbers: infinity has several spellings."""
    if str(cell) == expected:
        return True
    try:
        return float(cell) == float(expected)
    except (TypeError, ValueError):
        return False
