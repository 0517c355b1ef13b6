"""Tagged text: CoNLL files with a token and its tag on each line, and JSON objects with tokens and tags."""

from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from softlook.base.errors import DataError
from softlook.data.examples import Examples, ReadStats, TaggedText
from softlook.data.files import PathOrPaths, find_files, format_of
from softlook.data.lines import MAX_LINE_CHARS, Line, line_error, read_lines
from softlook.data.records import Origin, read_records
from softlook.data.sniffing import sniff_layout

DOCUMENT_START = "-DOCSTART-"
"""The token of a line that starts a document in the CoNLL-2003 files."""
TOKEN_KEYS, TAG_KEYS = ("tokens", "words"), ("tags", "ner_tags", "labels", "pos_tags")
HELP = "write a token and its tag on each line, with a tab or spaces between them, and a blank line between sentences"


def read_tagged(
    paths: PathOrPaths, *, max_bad_rows: int = 0, max_line_chars: int = MAX_LINE_CHARS
) -> Examples[TaggedText]:
    r"""Sentences of tokens with one tag each, from CoNLL files or JSON.

    In a CoNLL file the token is the first column of a line and the tag the last one. JSON has objects such as
    `{"tokens": ["Ada", "sings"], "tags": ["B-PER", "O"]}`.

    >>> _ = Path("a.conll").write_text("Ada B-PER\nsings O\n\nBob B-PER\n")
    >>> [(example.tokens, example.tags) for example in read_tagged("a.conll")]
    [(('Ada', 'sings'), ('B-PER', 'O')), (('Bob',), ('B-PER',))]
    """
    files = tuple(find_files(paths))
    for path in files:
        _check_format(path)
    is_json = {format_of(path) in ("json", "jsonl") for path in files}
    notes = tuple(
        "tokens and tags from JSON objects" if json else "token and tag on each line, first and last column"
        for json in sorted(is_json)
    )
    return Examples(files, partial(_iterate, files, max_line_chars), notes, max_bad_rows)


def _check_format(path: Path) -> None:
    if format_of(path) in ("csv", "excel", "parquet"):
        raise DataError(f"expected a CoNLL file or JSON, got {format_of(path)}", file=path, help=HELP)
    if format_of(path) not in ("json", "jsonl"):
        lines = islice((line for line in read_lines(path) if line.text.strip()), 20)
        rows = [_cells(line.text) for line in lines if not line.text.startswith(("#", DOCUMENT_START))]
        if rows and all(len(row) == 1 for row in rows):
            raise DataError("expected a token and a tag on each line, got one column", file=path, help=HELP)


def _iterate(files: tuple[Path, ...], max_chars: int, stats: ReadStats) -> Iterator[TaggedText]:
    for path in files:
        is_json = format_of(path) in ("json", "jsonl")
        yield from _iterate_json(path, max_chars, stats) if is_json else _iterate_conll(path, max_chars, stats)


def _iterate_conll(path: Path, max_chars: int, stats: ReadStats) -> Iterator[TaggedText]:
    rows: list[tuple[str, str]] = []
    first, width, error = 1, 0, None
    for line in _with_blank_end(path, max_chars):
        if line.error is None and not line.text.strip():
            if error is not None:
                stats.skip_bad_row(error)
            elif rows:
                stats.read += 1
                tokens, tags = zip(*rows, strict=True)
                yield TaggedText(tokens, tags, Origin(path, first))
            rows, error = [], None
            continue
        cells = _cells(line.text)
        if cells[:1] == [DOCUMENT_START] or _is_comment(line.text, cells, width):
            continue
        first = first if rows else line.number
        try:
            rows.append(_token_and_tag(line, cells, path))
            width = len(cells)
        except DataError as invalid:
            error = error or invalid


def _with_blank_end(path: Path, max_chars: int) -> Iterator[Line]:
    """The lines of a file, and a blank one that ends the last sentence."""
    yield from read_lines(path, max_chars=max_chars)
    yield Line(0, "")


def _cells(text: str) -> list[str]:
    return [cell.strip() for cell in text.split("\t")] if "\t" in text else text.split()


def _is_comment(text: str, cells: list[str], width: int) -> bool:
    """Whether a line is a comment, as in CoNLL-U; a row whose token is # has as many columns as the others."""
    return text.startswith("#") and len(cells) != (width or 2)


def _token_and_tag(line: Line, cells: list[str], path: Path) -> tuple[str, str]:
    if line.error is not None:
        raise line.error
    if len(cells) < 2 or not cells[0] or not cells[-1]:
        raise line_error(line, path, f"expected a token and a tag, got {len(cells)} column", help=HELP)
    return cells[0], cells[-1]


def _iterate_json(path: Path, max_chars: int, stats: ReadStats) -> Iterator[TaggedText]:
    layout = sniff_layout(path, max_line_chars=max_chars)
    for values, origin, error in read_records(path, layout, max_line_chars=max_chars):
        try:
            if error is not None:
                raise error
            tokens, tags = _values(values, TOKEN_KEYS, origin), _values(values, TAG_KEYS, origin)
            if len(tokens) != len(tags):
                raise origin.error(f"expected one tag per token, got {len(tokens)} tokens and {len(tags)} tags")
        except DataError as invalid:
            stats.skip_bad_row(invalid)
            continue
        if stats.count_example(text="".join(tokens)):
            yield TaggedText(tokens, tags, origin)


def _values(values: dict[str, Any], keys: tuple[str, ...], origin: Origin) -> tuple[str, ...]:
    key = next((key for key in keys if key in values), None)
    if key is None:
        listed = ", ".join(map(repr, list(values)[:8])) or "none"
        raise origin.error(f"expected a list under {keys[0]!r}; got the keys {listed:.200}")
    found = values[key]
    if not isinstance(found, list) or not all(isinstance(value, str) for value in found):
        is_numbers = isinstance(found, list) and any(isinstance(value, int) for value in found)
        help = "write the names of the tags, such as B-PER, not their numbers" if is_numbers else ""
        raise origin.error(f"{key!r}: expected a list of texts, got {str(found)[:80]}", help=help)
    return tuple(value.strip() for value in found)
