"""Text files of tables: decompressed bytes, delimiters, line numbers."""

import codecs
import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from softlook.base.errors import DataError
from softlook.data.files import uncompressed_name
from softlook.data.streams import file_errors, open_stream

JSON = (".jsonl", ".ndjson", ".json")
DELIMITERS = ",;\t|"


def file_extension(path: Path) -> str:
    """The file extension without its compression suffix.

    >>> file_extension(Path("people.CSV.gz"))
    '.csv'
    """
    return Path(uncompressed_name(path)).suffix.lower()


def detect_delimiter(path: Path) -> str:
    """The delimiter of the first line, ignoring quoted text; default: a comma."""
    header = re.sub(r'"[^"]*"', "", _head(path)).split("\n", 1)[0]
    return "\t" if file_extension(path) in (".tsv", ".tab") else max(DELIMITERS, key=header.count)


def read_rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Each row with the line on which it begins, counted from 1: a cell may span several lines.

    >>> _ = Path("notes.csv").write_text('note,stars\\n"two\\nlines",5\\n\\nfine,4\\n')
    >>> list(read_rows(Path("notes.csv")))
    [(2, {'note': 'two\\nlines', 'stars': '5'}), (5, {'note': 'fine', 'stars': '4'})]
    """
    records = _records(path)
    if file_extension(path) in JSON:
        yield from ((line, json.loads(text)) for line, (text,) in records)
        return
    _, names = next(records, (1, []))
    yield from ((line, dict(zip(names, cells, strict=False))) for line, cells in records)


def line_of_record(path: Path, record: int) -> int | None:
    """The line on which a record begins, where record 0 is the header; None if it cannot be determined."""
    with suppress(csv.Error):
        return next((line for line, _ in islice(_records(path), record, None)), None)
    return None


class DecompressedFile(io.RawIOBase):
    """A file's bytes, decompressed on demand."""

    def __init__(self, path: Path) -> None:
        self.blocks, self.buffered = open_stream(path), b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while not self.buffered:
            block = next(self.blocks, None)
            if block is None:
                return 0
            self.buffered = block
        data, self.buffered = self.buffered[: len(buffer)], self.buffered[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)


def _records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Non-empty records with their line numbers: CSV cells, the header first, or raw JSON lines."""
    lines = io.TextIOWrapper(io.BufferedReader(DecompressedFile(path)), "utf-8-sig", errors="replace", newline="")
    if file_extension(path) in JSON:
        yield from ((number, [line]) for number, line in enumerate(lines, 1) if line.strip())
        return
    reader, line = csv.reader(lines, delimiter=detect_delimiter(path)), 1
    for cells in reader:
        if cells:
            yield line, cells
        line = reader.line_num + 1


def _head(path: Path) -> str:
    with file_errors(path):
        first = next(iter(open_stream(path)), b"")
    if not first.strip():
        raise DataError("the file is empty", file=path)
    if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DataError("expected UTF-8, got UTF-16", file=path, help="save it as UTF-8")
    return first.decode("utf-8-sig", errors="replace")
