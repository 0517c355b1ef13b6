"""Tables by path, a piece at a time: however large a file is, only one piece of it is in memory.

What a column holds is made out from the first piece and stays so to the end, in every file: numbers are float64, dates
are microseconds, and a column without values is text. Where a later cell does not fit, the error says where. In files
whose cells are parted by anything but commas, a comma may stand for the decimal point.
"""

import codecs
import io
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.json as arrow_json
import pyarrow.parquet as pq

from softlook.base.errors import DataError
from softlook.data.encoding import how_to_convert
from softlook.data.files import Given, find, plain_name
from softlook.data.opening import stream, told
from softlook.tabular.arrow import pc

PIECE = 8 << 20
"""Bytes of text that are read at a time."""
ROWS = 65_536
"""Rows of a Parquet file that are read at a time."""
ARROW = (".arrow", ".feather", ".ipc")
PARQUET = (".parquet", ".pq")
JSON = (".jsonl", ".ndjson", ".json")
DELIMITERS = ",;\t|"
DECIMAL = r"^([-+]?[0-9]*),([0-9]+)$"
"""A number with a decimal comma, as a whole cell."""


def read_table(given: Given, *, words: Collection[str] = (), piece: int = PIECE) -> Iterator[pa.Table]:
    """The pieces of one or more files: CSV, TSV or JSON Lines, each also as .gz or .zst, Parquet or Arrow.

    `words` are columns to be read as text whatever they look like: codes with zeros in front, say. The files are one
    table: they have the same columns.

    >>> _ = Path("people.csv").write_text("name,age\\nAnn,31\\nBob,\\n")
    >>> [piece.to_pylist() for piece in read_table("people.csv")]
    [[{'name': 'Ann', 'age': 31.0}, {'name': 'Bob', 'age': None}]]
    """
    schema: pa.Schema | None = None
    for path in find(given):
        for table in _pieces(path, schema, frozenset(words), piece):
            schema = schema or table.schema
            yield _fitted(path, table, schema)


def _pieces(path: Path, schema: pa.Schema | None, words: frozenset[str], piece: int) -> Iterator[pa.Table]:
    ending = Path(plain_name(path)).suffix.lower()
    if ending in PARQUET:
        return _binary(path, words, _parquet(path))
    if ending in ARROW:
        return _binary(path, words, _arrow(path))
    return (_json if ending in JSON else _csv)(path, schema, words, piece)


def _csv(path: Path, schema: pa.Schema | None, words: frozenset[str], piece: int) -> Iterator[pa.Table]:
    delimiter = _delimiter(path, _head(path))
    parse = arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    read = arrow_csv.ReadOptions(use_threads=False, block_size=piece)  # with threads no error knows its row

    def opened(types: dict[str, pa.DataType], point: str) -> arrow_csv.CSVStreamingReader:
        convert = arrow_csv.ConvertOptions(strings_can_be_null=True, column_types=types, decimal_point=point)
        return arrow_csv.open_csv(_Blocks(path), read_options=read, parse_options=parse, convert_options=convert)

    try:
        plain = opened({}, ".").schema
        _refuse_twins(path, plain.names)
        comma = delimiter != "," and _numbers_in(opened({}, ",").schema) > _numbers_in(plain)
        point = "," if comma else "."
        found = schema or _stable(opened(dict.fromkeys(words, pa.string()), point).schema, words)
        for batch in opened({field.name: field.type for field in found}, point):
            table = pa.Table.from_batches([batch])
            yield _with_points(table, words) if comma else table
    except pa.ArrowInvalid as fault:
        raise _misfit(path, fault, rows_before=0) from None


def _json(path: Path, schema: pa.Schema | None, words: frozenset[str], piece: int) -> Iterator[pa.Table]:
    lines = 0
    options = arrow_json.ReadOptions(use_threads=False, block_size=1 << 30)
    for block in _whole_lines(stream(path), piece):
        fixed = pa.schema([(name, pa.string()) for name in words]) if schema is None else schema
        parse = arrow_json.ParseOptions(explicit_schema=fixed if len(fixed) else None)
        try:
            table = arrow_json.read_json(io.BytesIO(block), read_options=options, parse_options=parse)
            if schema is None:
                schema = _stable(table.schema, words)
                table = table.cast(schema)
        except pa.ArrowInvalid as fault:
            raise _misfit(path, fault, rows_before=lines + 1) from None
        yield table
        lines += block.count(b"\n")


def _binary(path: Path, words: frozenset[str], tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Types are the file's own, so only what is asked for becomes words."""
    try:
        for table in tables:
            kept = [pa.field(field.name, pa.string() if field.name in words else field.type) for field in table.schema]
            yield table.cast(pa.schema(kept))
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as fault:
        raise DataError(f"this file is damaged, or not what its name says: {str(fault):.200}", file=path) from None


def _parquet(path: Path) -> Iterator[pa.Table]:
    with pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False) as file:
        _refuse_twins(path, file.schema_arrow.names)
        for batch in file.iter_batches(ROWS, use_threads=False):
            yield pa.Table.from_batches([batch])


def _arrow(path: Path) -> Iterator[pa.Table]:
    with pa.memory_map(str(path)) as source:
        is_file = source.read(6) == b"ARROW1"
        source.seek(0)
        reader: Any = pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)
        _refuse_twins(path, reader.schema.names)
        batches = (reader.get_batch(place) for place in range(reader.num_record_batches)) if is_file else reader
        for batch in batches:
            yield pa.Table.from_batches([batch])


def _stable(schema: pa.Schema, words: frozenset[str]) -> pa.Schema:
    """Types that a later cell is likely to fit."""
    return pa.schema([(field.name, pa.string() if field.name in words else _wide(field.type)) for field in schema])


def _numbers_in(schema: pa.Schema) -> int:
    return sum(pa.types.is_floating(field.type) or pa.types.is_integer(field.type) for field in schema)


def _with_points(table: pa.Table, words: frozenset[str]) -> pa.Table:
    """Columns that are taken as they are spelled, with the numbers in them spelled as everywhere else."""
    for place, name in enumerate(table.column_names):
        if name in words:
            spelled = pc.replace_substring_regex(table.column(place), pattern=DECIMAL, replacement=r"\1.\2")
            table = table.set_column(place, name, spelled)
    return table


def _wide(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_integer(kind):
        return pa.float64()
    if pa.types.is_null(kind) or pa.types.is_binary(kind):
        return pa.string()
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return pa.timestamp("us", getattr(kind, "tz", None))
    return kind


def _fitted(path: Path, table: pa.Table, schema: pa.Schema) -> pa.Table:
    """A piece of a later file, with the columns of the first."""
    absent = [name for name in schema.names if name not in table.schema.names]
    more = [name for name in table.schema.names if name not in schema.names]
    if absent or more:
        told_absent = f"; it lacks {', '.join(map(repr, absent[:8]))}" if absent else ""
        told_more = f"; it also has {', '.join(map(repr, more[:8]))}" if more else ""
        raise DataError(f"its columns are not those that came first{told_absent}{told_more}", file=path)
    try:
        return table.select(schema.names).cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as fault:
        raise DataError(f"a column is not what it was in the first file: {str(fault):.200}", file=path) from None


def _misfit(path: Path, fault: Exception, *, rows_before: int) -> DataError:
    """pyarrow's complaint, with the line where it tells one."""
    said = re.sub(r"(CSV|JSON) parse error: |Row #\d+: | in row \d+$", "", str(fault))
    row = re.search(r"[Rr]ow #?(\d+)", str(fault))
    is_ragged = re.match(r"Expected \d+ columns", said) is not None
    line = rows_before + int(row[1]) if row else None
    if "invalid UTF8" in said:
        return DataError("this is not written in UTF-8", file=path, line=line, help=how_to_convert(path))
    return DataError(
        f"this does not fit what came before: {said:.200}",
        file=path,
        line=line,
        help="give every line as many cells as the first one has"
        if is_ragged
        else "mend the cell, or read its column as text: words=['its name'], or --kinds name=text",
    )


def _head(path: Path) -> str:
    with told(path):
        first = next(iter(stream(path)), b"")
    if not first.strip():
        raise DataError("this file is empty", file=path)
    if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DataError("this is UTF-16, and tables are read as UTF-8", file=path, help="save it as UTF-8")
    return first.decode("utf-8-sig", errors="replace")


def _delimiter(path: Path, head: str) -> str:
    if Path(plain_name(path)).suffix.lower() in (".tsv", ".tab"):
        return "\t"
    header = head.split("\n", 1)[0]
    return max(DELIMITERS, key=header.count)  # a comma where there is none of them


def _refuse_twins(path: Path, names: list[str]) -> None:
    twins = [name for name, often in Counter(names).items() if often > 1]
    if twins:
        named = ", ".join(map(repr, twins[:5]))
        raise DataError(f"more than one column is named {named}", file=path, line=1, help="give each its own name")


def _whole_lines(blocks: Iterable[bytes], piece: int) -> Iterator[bytes]:
    """Blocks of about a size that end where a line ends."""
    held = bytearray()
    for block in blocks:
        held += block
        end = held.rfind(b"\n") + 1
        if len(held) >= piece and end:
            yield bytes(held[:end])
            del held[:end]
    if held.strip():
        yield bytes(held)


class _Blocks(io.RawIOBase):
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
