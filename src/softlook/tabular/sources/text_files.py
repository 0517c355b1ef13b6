"""Tables that are text, below the level of types: their bytes, what parts their cells, and on which line a row lies."""

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
from softlook.data.files import plain_name
from softlook.data.opening import stream, told

JSON = (".jsonl", ".ndjson", ".json")
DELIMITERS = ",;\t|"


def ending_of(path: Path) -> str:
    """How its name ends, whatever it is packed with.

    >>> ending_of(Path("people.CSV.gz"))
    '.csv'
    """
    return Path(plain_name(path)).suffix.lower()


def delimiter_of(path: Path) -> str:
    """What parts the cells of its first line; a comma where nothing does. What stands in quotes does not count."""
    header = re.sub(r'"[^"]*"', "", _head(path)).split("\n", 1)[0]
    return "\t" if ending_of(path) in (".tsv", ".tab") else max(DELIMITERS, key=header.count)


def rows_of(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Each row with the line on which it begins, as an editor counts: a cell may go on over several.

    >>> _ = Path("notes.csv").write_text('note,stars\\n"two\\nlines",5\\n\\nfine,4\\n')
    >>> list(rows_of(Path("notes.csv")))
    [(2, {'note': 'two\\nlines', 'stars': '5'}), (5, {'note': 'fine', 'stars': '4'})]
    """
    records = _records(path)
    if ending_of(path) in JSON:
        yield from ((line, json.loads(text)) for line, (text,) in records)
        return
    _, names = next(records, (1, []))
    yield from ((line, dict(zip(names, cells, strict=False))) for line, cells in records)


def line_of(path: Path, record: int) -> int | None:
    """The line on which a row begins, counted from 0 with the names of columns; None where it cannot be made out."""
    with suppress(csv.Error):
        return next((line for line, _ in islice(_records(path), record, None)), None)
    return None


class Blocks(io.RawIOBase):
    """A file's bytes, unpacked as they are asked for."""

    def __init__(self, path: Path) -> None:
        self.blocks, self.held = stream(path), b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while not self.held:
            found = next(self.blocks, None)
            if found is None:
                return 0
            self.held = found
        given, self.held = self.held[: len(buffer)], self.held[len(buffer) :]
        buffer[: len(given)] = given
        return len(given)


def _records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Lines with their cells, those of CSV with names first; of JSON as they stand there. Empty ones are left out."""
    lines = io.TextIOWrapper(io.BufferedReader(Blocks(path)), "utf-8-sig", errors="replace", newline="")
    if ending_of(path) in JSON:
        yield from ((number, [line]) for number, line in enumerate(lines, 1) if line.strip())
        return
    reader, line = csv.reader(lines, delimiter=delimiter_of(path)), 1
    for cells in reader:
        if cells:
            yield line, cells
        line = reader.line_num + 1


def _head(path: Path) -> str:
    with told(path):
        first = next(iter(stream(path)), b"")
    if not first.strip():
        raise DataError("this file is empty", file=path)
    if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DataError("this is UTF-16, and tables are read as UTF-8", file=path, help="save it as UTF-8")
    return first.decode("utf-8-sig", errors="replace")
