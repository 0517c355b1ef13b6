"""Excel: the rows of one sheet of an .xlsx file, read with openpyxl."""

import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from openpyxl import load_workbook
from openpyxl.utils.escape import unescape

from softlook.base.errors import DataError
from softlook.data.streams import check_growth

ROWS_PER_READ = 512
ERROR_VALUES = frozenset(("#N/A", "#DIV/0!", "#REF!", "#VALUE!", "#NAME?", "#NUM!", "#NULL!"))
"""What Excel shows where a formula has no result: missing values."""


def excel_rows(path: Path) -> Iterator[tuple[int, list[Any]]]:
    """Row numbers and cells of the first sheet that is not empty, without blank rows and empty cells at the end.

    Formulas give the values that Excel last computed.
    """
    with _open(path) as workbook:
        sheet = next(iter(_filled_sheets(workbook)), None)
        if sheet is not None:
            yield from _rows(sheet)


def describe_sheet(path: Path) -> str:
    """Which sheet is read, if there is a choice."""
    with _open(path) as workbook:
        sheets = [sheet.title for sheet in _filled_sheets(workbook)]
    others = len(sheets) - 1
    return f"sheet {sheets[0]!r:.80}; {others:,} more not read" if others > 0 else ""


@contextmanager
def _open(path: Path) -> Iterator[Any]:
    """A workbook. openpyxl reports damage with exceptions of many types."""
    try:
        with path.open("rb") as file:
            _check_archive(path)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about formatting that openpyxl does not know
                workbook = load_workbook(file, read_only=True, data_only=True, keep_links=False)
            try:
                yield workbook
            finally:
                workbook.close()
    except (DataError, FileNotFoundError, PermissionError):
        raise
    except Exception as error:
        raise DataError(
            f"this .xlsx file is damaged, or not one: {str(error) or type(error).__name__:.200}",
            file=path,
            help="open it in a spreadsheet program and save it again as .xlsx without a password, or as CSV",
        ) from None


def _check_archive(path: Path) -> None:
    """Reject an archive whose parts would decompress to far more than its size."""
    with zipfile.ZipFile(path) as archive:
        check_growth(path, sum(part.file_size for part in archive.infolist()), consumed=path.stat().st_size)


def _filled_sheets(workbook: Any) -> Iterator[Any]:
    """The visible sheets with at least one value, in their order."""
    for sheet in workbook.worksheets:
        if sheet.sheet_state == "visible" and next(_rows(sheet), None) is not None:
            yield sheet


def _rows(sheet: Any) -> Iterator[tuple[int, list[Any]]]:
    sheet.reset_dimensions()  # some programs write a wrong size, which would truncate the sheet
    rows = sheet.iter_rows(values_only=True)
    number = 0
    while chunk := _take(rows):
        for values in chunk:
            number += 1
            cells = [_value(cell) for cell in values]
            while cells and cells[-1] is None:
                cells.pop()
            if cells:
                yield number, cells


def _take(rows: Iterator[Any]) -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(islice(rows, ROWS_PER_READ))


def _value(cell: Any) -> Any:
    if not isinstance(cell, str):
        return cell
    if cell in ERROR_VALUES or not cell.strip():
        return None
    return unescape(cell).replace("\r\n", "\n") if "_x" in cell else cell  # a carriage return is stored as _x000D_
