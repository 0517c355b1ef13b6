"""Where in a file a cell lies that is not what its column is to hold: looked for only once one is found to be so."""

import csv
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from itertools import count
from pathlib import Path
from typing import Any

from softlook.base.errors import DataError
from softlook.data.files import Given, find
from softlook.tabular.sources.cells import CellError
from softlook.tabular.sources.files import ARROW, PARQUET, read_table
from softlook.tabular.sources.pieces import is_paths
from softlook.tabular.sources.text_files import rows_of


@contextmanager
def told_where(given: Given) -> Iterator[None]:
    """What is wrong with a cell is said with its file and its line there; files and folders are gone through in order.

    >>> _ = Path("people.csv").write_text('name,age\\n"Ann\\nLee",31\\nBob,old\\n')
    >>> with told_where([Path("people.csv")]):
    ...     raise CellError("column 'age' is to hold numbers; 'old' came", name="age", cell="old", row=1)
    Traceback (most recent call last):
    softlook.base.errors.DataError: people.csv:4: column 'age' is to hold numbers; 'old' came
    """
    try:
        yield
    except CellError as fault:
        raise _placed(fault, find(given)) from None


def told_by_file(X: Any) -> AbstractContextManager[None]:
    """The same for a table of which nobody knows whether it comes from files."""
    return told_where(X) if is_paths(X) else nullcontext()


def _placed(fault: CellError, files: Sequence[Path]) -> DataError:
    for path in files:
        is_binary = path.suffix.lower() in (*PARQUET, *ARROW)
        with suppress(csv.Error, ValueError):  # what else is wrong with a file does not matter now
            for number, cell in _binary_cells(path, fault.name) if is_binary else _cells(path, fault.name):
                if _is_same(cell, fault.cell):
                    said = f"{fault.said} in row {number:,}, counted from 1" if is_binary else fault.said
                    return DataError(said, file=path, line=None if is_binary else number, help=fault.help)
    return fault


def _cells(path: Path, name: str) -> Iterator[tuple[int, Any]]:
    return ((line, row.get(name)) for line, row in rows_of(path))


def _binary_cells(path: Path, name: str) -> Iterator[tuple[int, Any]]:
    cells = (cell for piece in read_table(path) for cell in piece.column(name).to_pylist())
    return zip(count(1), cells, strict=False)


def _is_same(cell: Any, sought: str) -> bool:
    """As a word, or as a number: infinity is spelled in many ways."""
    if str(cell) == sought:
        return True
    try:
        return float(cell) == float(sought)
    except (TypeError, ValueError):
        return False
