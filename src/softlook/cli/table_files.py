"""Answers about rows to stdout or to a file: .csv, .tsv, .jsonl or .parquet, written as they come."""

import csv
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from softlook.base.errors import ConfigError
from softlook.base.excerpt import escaped
from softlook.cli.whole_files import new_file

DIGITS = 7
"""Of a number in a text: all that a float of four bytes knows."""
Columns = dict[str, list[Any] | dict[str, list[Any]]]
"""Answers by name; some are several under one name, by class or by column."""
NAMES = {"probabilities": "P({})", "looks": "look at {}"}
"""How such are named where every column stands by itself."""


def flat(columns: Columns) -> dict[str, list[Any]]:
    """Every column by itself.

    >>> flat({"buys": ["yes"], "probabilities": {"no": [0.2], "yes": [0.8]}})
    {'buys': ['yes'], 'P(no)': [0.2], 'P(yes)': [0.8]}
    """
    found: dict[str, list[Any]] = {}
    for name, values in columns.items():
        found |= (
            {NAMES[name].format(key): value for key, value in values.items()}
            if isinstance(values, dict)
            else {name: values}
        )
    return found


class Writer(Protocol):
    """What takes rows."""

    def add(self, columns: Columns) -> None:
        """Some more."""
        ...

    def close(self) -> None:
        """There are no more."""
        ...


@contextmanager
def answer_file(path: Path | None, *, is_json: bool) -> Iterator[Writer]:
    """A new file of the kind that its ending says, there only once it is whole; or stdout."""
    if path is None:
        yield ObjectLines(sys.stdout) if is_json else Lines(sys.stdout, ",")
        return
    kinds: dict[str, Callable[[Path], Writer]]
    kinds = {".csv": _csv, ".tsv": _tsv, ".jsonl": _jsonl, ".parquet": ParquetRows}
    with new_file(path, kinds, "answers") as writer:
        yield writer


class Lines:
    """A line for each row, under a line of names."""

    def __init__(self, file: TextIO, delimiter: str) -> None:
        self.file, self.has_names = file, False
        self.writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
        self.shown = escaped if file.isatty() else str  # on a terminal nothing in a table may act on it

    def add(self, columns: Columns) -> None:
        found = flat(columns)
        if not self.has_names:
            self.writer.writerow(map(self.shown, found))
            self.has_names = True
        self.writer.writerows([self.shown(_text(cell)) for cell in row] for row in zip(*found.values(), strict=True))
        self.file.flush()

    def close(self) -> None:
        self.file.close()


class ObjectLines:
    """An object of JSON for each row."""

    def __init__(self, file: TextIO) -> None:
        self.file = file

    def add(self, columns: Columns) -> None:
        rows = len(next(iter(flat(columns).values())))
        for row in range(rows):
            content = {name: _at(values, row) for name, values in columns.items()}
            self.file.write(json.dumps(content, ensure_ascii=False, default=str) + "\n")
        self.file.flush()

    def close(self) -> None:
        self.file.close()


class ParquetRows:
    """A table of the answers' own types."""

    def __init__(self, path: Path) -> None:
        self.path, self.file = path, None

    def add(self, columns: Columns) -> None:
        table = pa.table(flat(columns))
        if self.file is None:
            self.file = pq.ParquetWriter(self.path, table.schema)
        self.file.write_table(table.cast(self.file.schema))

    def close(self) -> None:
        if self.file is None:
            raise ConfigError("there were no rows, and a table of none has no columns")
        self.file.close()


def _csv(path: Path) -> Writer:
    return Lines(path.open("w", encoding="utf-8", newline=""), ",")


def _tsv(path: Path) -> Writer:
    return Lines(path.open("w", encoding="utf-8", newline=""), "\t")


def _jsonl(path: Path) -> Writer:
    return ObjectLines(path.open("w", encoding="utf-8"))


def _at(values: list[Any] | dict[str, list[Any]], row: int) -> Any:
    if isinstance(values, dict):
        return {key: _plain(value[row]) for key, value in values.items()}
    return _plain(values[row])


def _plain(cell: Any) -> Any:
    return float(f"{cell:.{DIGITS}g}") if isinstance(cell, float) else cell


def _text(cell: Any) -> str:
    if cell is None:
        return ""
    return f"{cell:.{DIGITS}g}" if isinstance(cell, float) else str(cell)
