"""Records of every file format, each with its origin."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from softlook.base.errors import DataError
from softlook.data.delimited import DelimitedRow, delimited_rows, ragged_row_error
from softlook.data.files import Format
from softlook.data.lines import MAX_LINE_CHARS, Line, line_error, read_lines
from softlook.data.streams import file_errors, find_invalid_char, load_arrow

TO_JSON_LINES = "jq -c '.[]' OLD.json > NEW.jsonl"


class Origin(NamedTuple):
    """The file and line of a record."""

    path: Path
    line: int
    """Counted from 1. In a Parquet file, the row."""

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

    def __str__(self) -> str:
        if self.format not in ("csv", "tsv"):
            return {"text": "plain text", "jsonl": "JSON Lines"}.get(self.format, "Parquet")
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
    if layout.format == "jsonl":
        return _read_jsonl(path, max_line_chars)
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
            what = f"row {origin.line:,}: expected at most {max_chars:,} characters in {name!r:.80}, got {len(value):,}"
            return origin.error(what, help="raise --max-line-chars")
        if find_invalid_char(value) is not None:
            return origin.error(f"row {origin.line:,}: {name!r:.80} has a NUL character", excerpt=value)
    return None


def parse_json_object(line: Line, path: Path) -> dict[str, Any]:
    """The values of one JSON line; those of a nested object also under names like translation.en.

    NaN and infinity, which are not JSON but which other programs write, count as missing.

    >>> parse_json_object(Line(1, '{"id": 7, "translation": {"en": "yes", "de": "ja"}}'), Path("a.jsonl"))
    {'id': 7, 'translation': {'en': 'yes', 'de': 'ja'}, 'translation.en': 'yes', 'translation.de': 'ja'}
    """
    try:
        content = json.loads(line.text, object_pairs_hook=_check_unique, parse_constant=lambda name: None)
    except json.JSONDecodeError as error:
        raise _syntax_error(line, path, error) from None
    except _DuplicateKeyError as error:
        column = line.text.rfind(json.dumps(str(error), ensure_ascii=False)) + 1
        raise line_error(line, path, f"duplicate key {str(error)!r:.80}", column or None) from None
    except RecursionError:
        raise line_error(line, path, "the values are nested too deeply") from None
    except ValueError as error:  # a number with thousands of digits
        raise line_error(line, path, f"cannot parse this line: {str(error):.100}") from None
    if not isinstance(content, dict):
        raise _not_an_object_error(line, path, content)
    values = _flatten(content)
    if "\\u" in line.text:
        _check_escapes(values, line, path)
    return values


class _DuplicateKeyError(Exception):
    pass


def _check_unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        seen: set[str] = set()
        raise _DuplicateKeyError(next(key for key, _ in pairs if key in seen or seen.add(key)))
    return content


def _flatten(content: dict[str, Any]) -> dict[str, Any]:
    nested = {key: value for key, value in content.items() if isinstance(value, dict)}
    return content | {f"{key}.{name}": inner for key, value in nested.items() for name, inner in value.items()}


def _check_escapes(values: dict[str, Any], line: Line, path: Path) -> None:
    r"""Reject NUL and surrogates from \u escapes."""
    for key, value in values.items():
        index = find_invalid_char(value) if isinstance(value, str) else None
        if index is not None:
            kind = "a NUL character" if value[index] == "\0" else "a lone surrogate"
            what = f"{key!r:.80} has {kind}, {ascii(value[index])[1:-1]}, at character {index + 1:,}"
            raise line_error(line, path, what, why="text has none: was it cut in the middle of a character?")


def _syntax_error(line: Line, path: Path, error: json.JSONDecodeError) -> DataError:
    if line.number == 1 and line.text.lstrip().startswith("[") or line.text.strip() == "{":
        what = "this file is one JSON value over several lines, not JSON Lines"
        why = "JSON Lines, with one object per line, can be read without loading all of them"
        return DataError(what, file=path, line=line.number, column=1, why=why, help=TO_JSON_LINES)
    at_end = error.pos >= len(line.text.rstrip()) or error.msg.startswith("Unterminated")
    why = "the line ends too early: was the file truncated?" if at_end else ""
    reason = error.msg[:1].lower() + error.msg[1:].removesuffix(" at").removesuffix(" starting")
    return line_error(line, path, f"invalid JSON: {reason}", error.pos + 1, why=why)


def _not_an_object_error(line: Line, path: Path, content: Any) -> DataError:
    if isinstance(content, list) and line.number == 1 and content and isinstance(content[0], dict):
        help = TO_JSON_LINES
    else:
        help = 'write each line as {"name": value, ...}'
    kind = {list: "a list", str: "a string", bool: "a boolean", type(None): "null"}.get(type(content), "a number")
    return line_error(line, path, f"expected an object, got {kind}", 1, help=help)
