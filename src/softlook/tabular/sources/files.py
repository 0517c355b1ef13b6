"""Tables by path, a piece at a time: however large a file is, only one piece of it is in memory.

What a column holds is made out from the first piece and stays so to the end, in every file: numbers are float64, dates
are microseconds, and a column without values is text. Where a later cell does not fit, the error says where. In files
whose cells are parted by anything but commas, a comma may stand for the decimal point.
"""

import re
import shlex
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.json as arrow_json
import pyarrow.parquet as pq

from softlook.base.errors import DataError
from softlook.data.encoding import how_to_convert
from softlook.data.files import Given, find, packing_of
from softlook.data.opening import BLOCK, check_growth, stream, told
from softlook.data.parquet import parquet_batches
from softlook.tabular.sources.arrow import pc
from softlook.tabular.sources.frames import refuse_twins
from softlook.tabular.sources.parsing import written
from softlook.tabular.sources.text_files import JSON, delimiter_of, ending_of, line_of
from softlook.tabular.wording import named

PIECE = 8 << 20
"""Bytes of text that are read at a time."""
ROWS = 65_536
"""Rows of a Parquet file that are read at a time."""
LARGE = 1 << 30
"""Bytes that a small Parquet file may decode to: columns of few values take up almost nothing on disk."""
ARROW = (".arrow", ".feather", ".ipc")
PARQUET = (".parquet", ".pq")
WIDEST = 8
"""Bytes that an empty cell may take up: a text has at least an eighth of the bytes of what is read from it."""
HELD = {"double": "numbers", "timestamp": "dates", "bool": "true and false"}
"""What columns of pyarrow's types hold, in words."""
DECIMAL = r"^([-+]?[0-9]*),([0-9]+)$"
"""A number with a decimal comma, as a whole cell."""


def read_table(
    given: Given, *, words: Collection[str] = (), piece: int = PIECE, as_spelled: bool = False
) -> Iterator[pa.Table]:
    """The pieces of one or more files: CSV, TSV or JSON Lines, each also as .gz or .zst, Parquet or Arrow.

    `words` are columns to be read as text whatever they look like: codes with zeros in front, say. The files are one
    table: they have the same columns. A number among words is spelled with a point wherever it comes from, unless it
    is to be `as_spelled` in its file.

    >>> _ = Path("people.csv").write_text("name,age\\nAnn,31\\nBob,\\n")
    >>> [piece.to_pylist() for piece in read_table("people.csv")]
    [[{'name': 'Ann', 'age': 31.0}, {'name': 'Bob', 'age': None}]]
    """
    schema: pa.Schema | None = None
    for path in find(given):
        with told(path):
            for table in _pieces(path, schema, frozenset(words), piece, as_spelled=as_spelled):
                schema = schema or table.schema
                yield _fitted(path, table, schema)


def _pieces(
    path: Path, schema: pa.Schema | None, words: frozenset[str], piece: int, *, as_spelled: bool
) -> Iterator[pa.Table]:
    ending = ending_of(path)
    if ending in PARQUET:
        return _binary(path, words, _parquet(path))
    if ending in ARROW:
        return _binary(path, words, _arrow(path))
    if ending in JSON:
        return _json(path, schema, words, piece)
    return _csv(path, schema, words, piece, as_spelled=as_spelled)


def _csv(
    path: Path, schema: pa.Schema | None, words: frozenset[str], piece: int, *, as_spelled: bool
) -> Iterator[pa.Table]:
    delimiter = delimiter_of(path)
    parse = arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    read = arrow_csv.ReadOptions(use_threads=False, block_size=min(piece, BLOCK))  # with threads no error knows its row

    def opened(types: dict[str, pa.DataType], point: str) -> arrow_csv.CSVStreamingReader:
        convert = arrow_csv.ConvertOptions(strings_can_be_null=True, column_types=types, decimal_point=point)
        return arrow_csv.open_csv(_unpacked(path), read_options=read, parse_options=parse, convert_options=convert)

    names, given = list[str](), 0
    try:
        plain = opened({}, ".").schema
        names = plain.names
        refuse_twins(names, path)
        comma = delimiter != "," and _numbers_in(opened({}, ",").schema) > _numbers_in(plain)
        point = "," if comma else "."
        found = schema or _stable(opened(dict.fromkeys(words, pa.string()), point).schema, words)
        for batch in opened({field.name: field.type for field in found}, point):
            given += batch.nbytes // WIDEST
            if packing_of(path):
                check_growth(path, given, consumed=path.stat().st_size)
            table = pa.Table.from_batches([batch])
            yield _with_points(table) if comma and not as_spelled else table
    except UnicodeDecodeError:
        raise _not_utf_8(path, 1) from None  # the names of columns; cells are pyarrow's affair
    except pa.ArrowInvalid as fault:
        raise _misfit(path, fault, names, first=-1) from None


def _unpacked(path: Path) -> pa.NativeFile:
    """A file as pyarrow reads it: ahead, in threads, of which one that waits for Python while that ends would take the
    whole process down. So nothing of it is Python's.
    """
    file, packing = pa.OSFile(str(path)), packing_of(path)
    return file if packing is None else pa.CompressedInputStream(file, packing)


def _json(path: Path, schema: pa.Schema | None, words: frozenset[str], piece: int) -> Iterator[pa.Table]:
    rows, plain = 0, set[str]()
    for block in _whole_lines(stream(path), piece):
        fixed = pa.schema([(name, pa.string()) for name in sorted(words)]) if schema is None else schema
        try:
            table = _objects(block, fixed, words, plain)
            if schema is None:
                schema = _stable(table.schema, words)
                table = table.cast(schema)
        except pa.ArrowInvalid as fault:
            raise _misfit(path, fault, [], first=rows) from None
        yield table
        rows += table.num_rows


def _objects(block: bytes, fixed: pa.Schema, words: frozenset[str], plain: set[str]) -> pa.Table:
    """Objects of JSON. Columns of numbers or truths that are wanted as words, which join `plain`, are spelled out."""
    asked = [field for field in fixed if field.name not in plain]
    options = arrow_json.ReadOptions(use_threads=False, block_size=1 << 30)
    parse = arrow_json.ParseOptions(explicit_schema=pa.schema(asked) if asked else None)
    try:
        table = arrow_json.read_json(pa.BufferReader(block), read_options=options, parse_options=parse)
    except pa.ArrowInvalid as fault:
        odd = re.search(r"Column\(/(.+)\) changed from string to (number|boolean)", str(fault))
        if odd is None or odd[1] not in words - plain:
            raise
        plain.add(odd[1])
        return _objects(block, fixed, words, plain)
    for name in plain & set(table.column_names):
        spelled = written(table.column(name).combine_chunks()).cast(pa.string())
        table = table.set_column(table.column_names.index(name), name, spelled)
    return table


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
        refuse_twins(file.schema_arrow.names, path)
    for batch in parquet_batches(path, ROWS, harmless=LARGE):
        yield pa.Table.from_batches([batch])


def _arrow(path: Path) -> Iterator[pa.Table]:
    with pa.memory_map(str(path)) as source:
        is_file = source.read(6) == b"ARROW1"
        source.seek(0)
        reader: Any = pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)
        refuse_twins(reader.schema.names, path)
        batches = (reader.get_batch(place) for place in range(reader.num_record_batches)) if is_file else reader
        for batch in batches:
            yield pa.Table.from_batches([batch])


def _stable(schema: pa.Schema, words: frozenset[str]) -> pa.Schema:
    """Types that a later cell is likely to fit."""
    return pa.schema([(field.name, pa.string() if field.name in words else _wide(field.type)) for field in schema])


def _numbers_in(schema: pa.Schema) -> int:
    return sum(pa.types.is_floating(field.type) or pa.types.is_integer(field.type) for field in schema)


def _with_points(table: pa.Table) -> pa.Table:
    """Columns of words, with the numbers in them spelled as everywhere else."""
    for place, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            spelled = pc.replace_substring_regex(table.column(place), pattern=DECIMAL, replacement=r"\1.\2")
            table = table.set_column(place, field.name, spelled)
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
    first, own = dict.fromkeys(schema.names), dict.fromkeys(table.column_names)  # thousands, it may be
    absent, more = [name for name in first if name not in own], [name for name in own if name not in first]
    if absent or more:
        told_absent = f"; it lacks {named(absent)}" if absent else ""
        told_more = f"; it also has {named(more)}" if more else ""
        raise DataError(f"its columns are not those that came first{told_absent}{told_more}", file=path)
    try:
        return table.select(list(first)).cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as fault:
        raise DataError(f"a column is not what it was in the first file: {str(fault):.200}", file=path) from None


def _misfit(path: Path, fault: Exception, names: list[str], *, first: int) -> DataError:
    """pyarrow's complaint, with the line where it tells a row, of which the first has this number."""
    said = re.sub(r"(CSV|JSON) parse error: |Row #\d+: | in row \d+$", "", str(fault))
    row = re.search(r"[Rr]ow #?(\d+)", str(fault))
    line = line_of(path, first + int(row[1])) if row else None
    if "invalid UTF8" in said:
        return _not_utf_8(path, line)
    odd = re.search(r"column #(\d+): CSV conversion error to (\w+).*: invalid value '(.*)'$", said)
    help = "mend the cell, or read its column as text: words=['its name'], or --kinds name=text"
    if odd and int(odd[1]) < len(names):
        name = names[int(odd[1])]
        said = f"column {name!r:.80} held {HELD.get(odd[2], odd[2])}, and {odd[3]!r:.60} came"
        told = shlex.quote(f"{name}=category")
        help = f"mend the cell or empty it; before learning, words=[{name!r}], or --kinds {told}, takes any words"
    if re.match(r"Expected \d+ columns", said):
        said, *more = said.split("\n")
        help = "give every line as many cells as the first one has"
        if more and said.count('"') % 2:
            help = "a quotation mark is opened here and not closed: close it, or write two where one is meant"
    return DataError(f"this does not fit what came before: {said:.200}", file=path, line=line, help=help)


def _not_utf_8(path: Path, line: int | None) -> DataError:
    return DataError("this is not written in UTF-8", file=path, line=line, help=how_to_convert(path))


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
