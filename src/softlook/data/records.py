"""Records from files of every format, each with its origin, so that an error much later can still point there."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from softlook.base.errors import DataError
from softlook.data.delimited import Row, quoted_rows, ragged, split_rows
from softlook.data.encoding import unfit
from softlook.data.files import Format
from softlook.data.jsonl import parse_object
from softlook.data.lines import LONGEST, Line, read_lines
from softlook.data.opening import arrow_for, told


class Origin(NamedTuple):
    """Where a record came from."""

    path: Path
    line: int
    """Counted from 1. In a Parquet file, the row."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"

    def fault(self, what: str, *, excerpt: str = "", why: str = "", help: str = "") -> DataError:
        """The error that points here."""
        return DataError(what, file=self.path, line=self.line, excerpt=excerpt, why=why, help=help)


class Record(NamedTuple):
    """Names and values: text from CSV, TSV and plain text; from JSON and Parquet also numbers, None, lists."""

    values: dict[str, Any]
    origin: Origin
    fault: DataError | None = None
    """What is wrong with it; then there are no values."""


@dataclass(frozen=True)
class Layout:
    """How a file's records are written down."""

    format: Format
    columns: tuple[str, ...]
    delimiter: str = ""
    has_header: bool = False
    others: tuple[str, ...] = ()
    """Columns that hold neither text nor numbers, with their types."""

    def __str__(self) -> str:
        if self.format not in ("csv", "tsv"):
            return {"text": "plain text", "jsonl": "JSON lines"}.get(self.format, "Parquet")
        between = {"\t": "tabs", ",": "commas", ";": "semicolons", "|": "bars"}[self.delimiter]
        return f"{self.format.upper()} with {between}, {'a header' if self.has_header else 'no header'}"


def read(
    path: Path, layout: Layout, columns: Sequence[str] | None = None, *, longest: int = LONGEST
) -> Iterator[Record]:
    r"""The records of a file, one by one. Those with a fault come too: whoever reads decides whether it can be borne.

    >>> _ = Path("a.jsonl").write_text('{"text": "fine"}\n{"text": \n')
    >>> for record in read(Path("a.jsonl"), Layout("jsonl", ("text",))):
    ...     print(record.fault.place if record.fault else record.values)
    {'text': 'fine'}
    a.jsonl:2:10
    """
    if layout.format == "parquet":
        return _parquet(path, tuple(layout.columns if columns is None else columns), longest)
    if layout.format == "jsonl":
        return _jsonl(path, longest)
    return _text(path, longest) if layout.format == "text" else _table(path, layout, longest)


def _text(path: Path, longest: int) -> Iterator[Record]:
    for line in read_lines(path, longest=longest):
        yield Record({"text": line.text}, Origin(path, line.number), line.fault)


def _table(path: Path, layout: Layout, longest: int) -> Iterator[Record]:
    rows = cells_of(path, read_lines(path, longest=longest), layout.format, layout.delimiter, longest)
    names, width = layout.columns, len(layout.columns)
    for line, cells, fault in islice(rows, layout.has_header, None):
        if len(cells) > width and not any(cells[width:]):
            del cells[width:]  # spreadsheets like to end a line with empty cells
        if fault is None and len(cells) != width:
            fault = ragged(path, Row(line, cells), width)
        yield Record({} if fault else dict(zip(names, cells, strict=True)), Origin(path, line), fault)


def cells_of(path: Path, lines: Iterable[Line], format: Format, delimiter: str, longest: int) -> Iterator[Row]:
    """The rows of a table."""
    return quoted_rows(lines, delimiter, path, longest) if format == "csv" else split_rows(lines, delimiter)


def _jsonl(path: Path, longest: int) -> Iterator[Record]:
    for line in read_lines(path, longest=longest):
        if not line.text.strip() and not line.fault:
            continue
        fault, values = line.fault, {}
        try:
            values = {} if fault else parse_object(line, path)
        except DataError as found:
            fault = found
        yield Record(values, Origin(path, line.number), fault)


def _parquet(path: Path, columns: tuple[str, ...], longest: int) -> Iterator[Record]:
    with told(path):
        for number, row in enumerate(arrow_for(path).parquet_rows(path, columns), 1):
            origin = Origin(path, number)
            if isinstance(row, UnicodeDecodeError):
                yield Record({}, origin, origin.fault(f"row {number:,} holds bytes that are no UTF-8"))
            else:
                fault = _unfit(row, origin, longest)
                yield Record({} if fault else row, origin, fault)


def _unfit(row: dict[str, Any], origin: Origin, longest: int) -> DataError | None:
    for name, value in row.items():
        if not isinstance(value, str):
            continue
        if len(value) > longest:
            what = f"row {origin.line:,}: {name!r:.80} has {len(value):,} characters; at most {longest:,} are taken"
            return origin.fault(what, help="raise --longest-line")
        place = unfit(value)
        if place is not None:
            return origin.fault(f"row {origin.line:,}: {name!r:.80} holds a NUL character", excerpt=value)
    return None
