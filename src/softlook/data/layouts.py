"""How a file is laid out, learnt from its name and its beginning."""

from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import TypeVar

from softlook.base.errors import DataError
from softlook.data.delimited import guess_delimiter
from softlook.data.files import Format, format_of, packing_of
from softlook.data.headers import column_names, has_header
from softlook.data.lines import LONGEST, Line, read_lines
from softlook.data.opening import arrow_for, told
from softlook.data.records import Layout, Record, cells_of, read

LOOK, ENOUGH = 200, 1 << 22
"""Records, or characters, that are looked at to learn how a file is laid out."""


Item = TypeVar("Item")


def layout_of(path: Path, *, is_table: bool = False, header: bool | None = None, longest: int = LONGEST) -> Layout:
    r"""How a file is laid out, from its name and its beginning.

    With `is_table`, plain text in which every line has a tab is a table without a .tsv to its name.

    >>> _ = Path("a.csv").write_text("review,stars\nfine,4\npoor,1\n")
    >>> layout_of(Path("a.csv"))
    Layout(format='csv', columns=('review', 'stars'), delimiter=',', has_header=True, others=())
    """
    format = format_of(path)
    if format == "parquet":
        return _parquet_layout(path)
    if format == "jsonl":
        return _jsonl_layout(path, longest)
    if format == "text" and not (is_table and _has_tabs(path, longest)):
        return Layout("text", ("text",))
    return _table_layout(path, "csv" if format == "csv" else "tsv", header, longest)


def beginning(items: Iterable[Item], size: Callable[[Item], int], count: int) -> list[Item]:
    """The first so many items, or fewer where they are large.

    >>> beginning(["a", "b", "c"], len, count=2)
    ['a', 'b']
    """
    taken: list[Item] = []
    held = 0
    for item in islice(items, count):
        taken.append(item)
        held += size(item)
        if held > ENOUGH:
            break
    return taken


def record_size(record: Record) -> int:
    """The characters that a record holds."""
    return sum(len(value) for value in record.values.values() if isinstance(value, str))


def _line_size(line: Line) -> int:
    return len(line.text)


def empty(path: Path) -> DataError:
    """The error for a file without a single row."""
    return DataError("this file is empty", file=path)


def _has_tabs(path: Path, longest: int) -> bool:
    texts = [line.text for line in beginning(read_lines(path, longest=longest), _line_size, LOOK) if line.text]
    return bool(texts) and all("\t" in text for text in texts)


def _jsonl_layout(path: Path, longest: int) -> Layout:
    records = beginning(read(path, Layout("jsonl", ()), longest=longest), record_size, LOOK)
    values = (item for record in records for item in record.values.items())
    names = dict.fromkeys(name for name, value in values if not isinstance(value, dict))
    fault = next((record.fault for record in records if record.fault), None)
    if not names and (fault or not records):
        raise fault or empty(path)
    return Layout("jsonl", tuple(names))


def _table_layout(path: Path, format: Format, header: bool | None, longest: int) -> Layout:
    lines = beginning(read_lines(path, longest=longest), _line_size, LOOK)
    delimiter = guess_delimiter(lines, path) if format == "csv" else "\t"
    first = next(cells_of(path, read_lines(path, longest=longest), format, delimiter, longest), None)
    if first is None:
        raise empty(path)
    if first.fault:
        raise first.fault  # it may be the header, without which the rest means nothing
    rows = [row.cells for row in cells_of(path, lines, format, delimiter, longest) if not row.fault]
    is_headed = has_header(rows or [first.cells]) if header is None else header
    return Layout(format, column_names(path, first, is_header=is_headed), delimiter, is_headed)


def _parquet_layout(path: Path) -> Layout:
    if packing_of(path):
        raise DataError("a Parquet file is packed inside; this one is packed once more", file=path, help="unpack it")
    with told(path):
        columns, others = arrow_for(path).parquet_columns(path)
    return Layout("parquet", columns, others=others)
