"""Records of every file format, each with its origin."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from softlook.base.errors import DataError
from softlook.data.delimited import DelimitedRow, delimited_rows, ragged_row_error
from softlook.data.files import Format
from softlook.data.json_records import parse_json_object, read_json_document
from softlook.data.lines import MAX_LINE_CHARS, read_lines
from softlook.data.streams import file_errors, find_invalid_char, load_arrow, load_excel

FORMAT_NAMES = {"text": "plain text", "jsonl": "JSON Lines", "json": "JSON", "excel": "Excel", "parquet": "Parquet"}


class Origin(NamedTuple):
    """The file and line of a record."""

    path: Path
    line: int
    """Counted from 1. In a Parquet or Excel file, the row."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"

    def error(self, what: str, *, excerpt: str = "", why: str = "", help: str = "") -> DataError:
        """An error at this location."""
        return DataError(what, file=self.path, line=self.line, excerpt=excerpt, why=why, help=help)


class Record(NamedTuple):
    """Column names and values: text from CSV, TSV and plain text; from JSON and Parquet also numbers, None, lists."""

    values: dict[str, Any]
    origin: Origin
    error: DataError | None = None
    """What is wrong with it; there are no values then."""


@dataclass(frozen=True)
class Layout:
    """Format, columns and delimiter of a file."""

    format: Format
    columns: tuple[str, ...]
    delimiter: str = ""
    has_header: bool = False
    unsupported: tuple[str, ...] = ()
    """Columns that are neither text nor numbers, with their types."""
    note: str = ""
    """What was inferred about the file, as a sentence."""

    def __str__(self) -> str:
        if self.format not in ("csv", "tsv"):
            return FORMAT_NAMES[self.format]
        delimiter = {"\t": "tabs", ",": "commas", ";": "semicolons", "|": "bars"}[self.delimiter]
        return f"{self.format.upper()} with {delimiter}, {'a header' if self.has_header else 'no header'}"


def read_records(
    path: Path, layout: Layout, columns: Sequence[str] | None = None, *, max_line_chars: int = MAX_LINE_CHARS
) -> Iterator[Record]:
    r"""The records of a file. Invalid ones are included, with an error: the caller decides whether to skip them.

    >>> _ = Path("a.jsonl").write_text('{"text": "fine"}\n{"text": \n')
    >>> for record in read_records(Path("a.jsonl"), Layout("jsonl", ("text",))):
    ...     print(record.error.location if record.error else record.values)
    {'text': 'fine'}
    a.jsonl:2:10
    """
    if layout.format == "parquet":
        return _read_parquet(path, tuple(layout.columns if columns is None else columns), max_line_chars)
    if layout.format == "excel":
        return _read_excel(path, layout, max_line_chars)
    if layout.format == "jsonl":
        return _read_jsonl(path, max_line_chars)
    if layout.format == "json":
        return _read_json(path, max_line_chars)
    if layout.format == "text":
        return _read_text(path, max_line_chars)
    return _read_delimited(path, layout, max_line_chars)


def _read_text(path: Path, max_chars: int) -> Iterator[Record]:
    for line in read_lines(path, max_chars=max_chars):
        yield Record({"text": line.text}, Origin(path, line.number), line.error)


def _read_delimited(path: Path, layout: Layout, max_chars: int) -> Iterator[Record]:
    lines, has_quotes = read_lines(path, max_chars=max_chars), layout.format == "csv"
    rows = delimited_rows(lines, layout.delimiter, path, has_quotes=has_quotes, max_chars=max_chars)
    names, width = layout.columns, len(layout.columns)
    for line, cells, error in islice(rows, layout.has_header, None):
        if len(cells) > width and not any(cells[width:]):
            del cells[width:]  # spreadsheets often end a line with empty cells
        if error is None and len(cells) != width:
            error = ragged_row_error(path, DelimitedRow(line, cells), width)
        yield Record({} if error else dict(zip(names, cells, strict=True)), Origin(path, line), error)


def _read_jsonl(path: Path, max_chars: int) -> Iterator[Record]:
    for line in read_lines(path, max_chars=max_chars):
        if not line.text.strip() and not line.error:
            continue
        error, values = line.error, {}
        try:
            values = {} if error else parse_json_object(line, path)
        except DataError as invalid:
            error = invalid
        yield Record(values, Origin(path, line.number), error)


def _read_json(path: Path, max_chars: int) -> Iterator[Record]:
    for line, values, error in read_json_document(path):
        origin = Origin(path, line)
        error = error or _invalid_row(values, origin, max_chars)
        yield Record({} if error else values, origin, error)


def _read_excel(path: Path, layout: Layout, max_chars: int) -> Iterator[Record]:
    with file_errors(path):
        for number, cells in islice(load_excel(path).excel_rows(path), layout.has_header, None):
            values = dict(zip(layout.columns, map(_without_type, cells), strict=False))
            origin = Origin(path, number)
            error = _invalid_row(values, origin, max_chars)
            yield Record({} if error else values, origin, error)


def _without_type(cell: Any) -> Any:
    """Dates and times as text."""
    if isinstance(cell, datetime) and cell.time() == time():
        cell = cell.date()
    return str(cell) if isinstance(cell, date | time | timedelta) else cell


def _read_parquet(path: Path, columns: tuple[str, ...], max_chars: int) -> Iterator[Record]:
    with file_errors(path):
        for number, row in enumerate(load_arrow(path).parquet_rows(path, columns), 1):
            origin = Origin(path, number)
            if isinstance(row, UnicodeDecodeError):
                yield Record({}, origin, origin.error(f"row {number:,} has bytes that are not UTF-8"))
            else:
                error = _invalid_row(row, origin, max_chars)
                yield Record({} if error else row, origin, error)


def _invalid_row(row: dict[str, Any], origin: Origin, max_chars: int) -> DataError | None:
    for name, value in row.items():
        if not isinstance(value, str):
            continue
        if len(value) > max_chars:
            what = f"expected at most {max_chars:,} characters in {name!r:.80}, got {len(value):,}"
            return origin.error(what, help="raise --max-line-chars")
        if find_invalid_char(value) is not None:
            return origin.error(f"{name!r:.80} has a NUL character", excerpt=value)
    return None
