"""Layout detection: format, delimiter, header."""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

from softlook.base.errors import DataError
from softlook.data.columns import KNOWN, NUMBER, is_language
from softlook.data.delimited import DelimitedRow, delimited_rows, guess_delimiter
from softlook.data.files import Format, compression_of, format_of
from softlook.data.json_records import is_json_document
from softlook.data.lines import MAX_LINE_CHARS, Line, read_lines
from softlook.data.records import Layout, Record, read_records
from softlook.data.streams import file_errors, load_arrow, load_excel

SNIFF_RECORDS, SNIFF_CHARS = 200, 1 << 22
"""Records, or characters, read to detect a layout."""
MAX_COLUMNS = 4096
NAME = re.compile(r"[^\W\d][\w .\-/#()]{0,39}|#[\w ]{1,39}|")

Item = TypeVar("Item")


def sniff_layout(
    path: Path, *, is_table: bool = False, header: bool | None = None, max_line_chars: int = MAX_LINE_CHARS
) -> Layout:
    r"""The layout of a file, from its name and its first records.

    With `is_table`, plain text with a tab in every line is read as TSV.

    >>> _ = Path("a.csv").write_text("review,stars\nfine,4\npoor,1\n")
    >>> sniff_layout(Path("a.csv"))
    Layout(format='csv', columns=('review', 'stars'), delimiter=',', has_header=True, unsupported=(), note='')
    """
    format = format_of(path)
    if format == "parquet":
        return _sniff_parquet(path)
    if format == "excel":
        return _sniff_excel(path, header)
    if format in ("json", "jsonl"):
        is_document = format == "json" and is_json_document(path)  # .json may also be JSON Lines
        return _sniff_json(path, "json" if is_document else "jsonl", max_line_chars)
    if format == "text" and not (is_table and _has_tabs(path, max_line_chars)):
        return Layout("text", ("text",))
    return _sniff_delimited(path, "csv" if format == "csv" else "tsv", header, max_line_chars)


def take_sample(items: Iterable[Item], size: Callable[[Item], int], count: int) -> list[Item]:
    """The first `count` items, or fewer if they are large.

    >>> take_sample(["a", "b", "c"], len, count=2)
    ['a', 'b']
    """
    taken: list[Item] = []
    total = 0
    for item in islice(items, count):
        taken.append(item)
        total += size(item)
        if total > SNIFF_CHARS:
            break
    return taken


def record_size(record: Record) -> int:
    """Characters of a record."""
    return sum(len(value) for value in record.values.values() if isinstance(value, str))


def _line_size(line: Line) -> int:
    return len(line.text)


def _empty_file_error(path: Path) -> DataError:
    return DataError("this file is empty", file=path)


def _has_tabs(path: Path, max_chars: int) -> bool:
    lines = take_sample(read_lines(path, max_chars=max_chars), _line_size, SNIFF_RECORDS)
    texts = [line.text for line in lines if line.text]
    return bool(texts) and all("\t" in text for text in texts)


def _sniff_json(path: Path, format: Format, max_chars: int) -> Layout:
    records = read_records(path, Layout(format, ()), max_line_chars=max_chars)
    sample = take_sample(records, record_size, SNIFF_RECORDS)
    values = (item for record in sample for item in record.values.items())
    names = dict.fromkeys(name for name, value in values if not isinstance(value, dict))
    error = next((record.error for record in sample if record.error), None)
    if not names and (error or not sample):
        raise error or _empty_file_error(path)
    return Layout(format, tuple(names))


def _sniff_delimited(path: Path, format: Format, header: bool | None, max_chars: int) -> Layout:
    lines = take_sample(read_lines(path, max_chars=max_chars), _line_size, SNIFF_RECORDS)
    delimiter = guess_delimiter(lines, path) if format == "csv" else "\t"
    split = partial(delimited_rows, delimiter=delimiter, path=path, has_quotes=format == "csv", max_chars=max_chars)
    first = next(split(read_lines(path, max_chars=max_chars)), None)
    if first is None:
        raise _empty_file_error(path)
    if first.error:
        raise first.error  # it may be the header, without which the other rows have no meaning
    rows = [row.cells for row in split(lines) if not row.error]
    is_header = has_header(rows or [first.cells]) if header is None else header
    return Layout(format, column_names(path, first, is_header=is_header), delimiter, is_header)


def _sniff_parquet(path: Path) -> Layout:
    if compression_of(path):
        raise DataError("Parquet is compressed already; this file is compressed again", file=path, help="decompress it")
    with file_errors(path):
        columns, unsupported = load_arrow(path).parquet_columns(path)
    return Layout("parquet", columns, unsupported=unsupported)


def _sniff_excel(path: Path, header: bool | None) -> Layout:
    excel = load_excel(path)
    with file_errors(path):
        rows = list(islice(excel.excel_rows(path), SNIFF_RECORDS))
        note = excel.describe_sheet(path)
    if not rows:
        raise _empty_file_error(path)
    width = max(len(cells) for _, cells in rows)
    texts = [["" if cell is None else str(cell) for cell in cells] for _, cells in rows]
    is_header = has_header(texts) if header is None else header
    first = DelimitedRow(rows[0][0], texts[0] + [""] * (width - len(texts[0])))
    return Layout("excel", column_names(path, first, is_header=is_header), has_header=is_header, note=note)


def has_header(rows: list[list[str]]) -> bool:
    """Whether the first row holds column names. In doubt it does not: a wrong guess should not lose an example.

    >>> has_header([["text", "label"], ["good", "1"]]), has_header([["Go.", "Va !"], ["Run!", "Cours !"]])
    (True, False)
    """
    first, rest = rows[0], rows[1:]
    if not all(NAME.fullmatch(cell.strip()) for cell in first) or not any(first):
        return False
    names = [cell.strip().casefold() for cell in first]
    if any(name in KNOWN for name in names) or all(map(is_language, names)):
        return True
    return any(_stands_out(cell, [row[i] for row in rest if i < len(row)]) for i, cell in enumerate(first))


def _stands_out(first: str, rest: list[str]) -> bool:
    """Whether a cell differs from those below: not a number above numbers, or a word above few repeated values."""
    if len(rest) < 2 or not first:
        return False
    numbers = sum(NUMBER.fullmatch(cell) is not None for cell in rest)
    if numbers >= 0.9 * len(rest):
        return not NUMBER.fullmatch(first)
    distinct = set(rest)
    return len(rest) >= 10 and 1 < len(distinct) <= len(rest) / 5 and first not in distinct


def column_names(path: Path, row: DelimitedRow, *, is_header: bool) -> tuple[str, ...]:
    """The column names of a header row, or numbers. Names must be unique."""
    if len(row.cells) > MAX_COLUMNS:
        what = f"expected at most {MAX_COLUMNS:,} columns, got {len(row.cells):,}"
        raise _header_error(path, row, what, "is the delimiter right?")
    if not is_header:
        return tuple(str(number) for number, _ in enumerate(row.cells, 1))
    names = tuple(cell.strip() or f"column {number}" for number, cell in enumerate(row.cells, 1))
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise _header_error(path, row, f"{count:,} columns are named {name!r:.80}", "give each column a unique name")
    return names


def _header_error(path: Path, row: DelimitedRow, what: str, help: str) -> DataError:
    return DataError(what, file=path, line=row.line, excerpt=" | ".join(row.cells[:20]), help=help)
