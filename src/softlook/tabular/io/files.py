"""Table files in chunks: CSV, TSV, JSON Lines, Parquet, Arrow; Excel and JSON lists as a whole.

Of the others only one chunk is in memory. The schema is inferred from the first chunk and holds for all files: numbers
are float64, dates are microseconds, and an empty column is text. In files whose delimiter is not a comma, a comma may
be the decimal point.
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
from softlook.data.arrow import parquet_batches
from softlook.data.files import PathOrPaths, compression_of, find_files
from softlook.data.streams import BLOCK, check_growth, file_errors, iconv_command, open_stream
from softlook.tabular.formatting import join_names
from softlook.tabular.io.arrow import pc, to_strings
from softlook.tabular.io.frames import check_unique_names
from softlook.tabular.io.objects import holds_objects, read_objects
from softlook.tabular.io.text_files import JSON, detect_delimiter, file_extension, line_of_record

CHUNK_BYTES = 8 << 20
"""Bytes of text in a chunk."""
PARQUET_ROWS = 65_536
"""Rows of a Parquet chunk."""
MAX_DECODED_BYTES = 1 << 30
"""Bytes to which a small Parquet file may decode: columns of few values take almost no space on disk."""
ARROW = (".arrow", ".feather", ".ipc")
PARQUET = (".parquet", ".pq")
MAX_EMPTY_CELL_BYTES = 8
"""Memory of an empty cell: the text has at least an eighth of the bytes of its Arrow batch."""
TYPE_NAMES = {"double": "numbers", "timestamp": "dates", "bool": "true and false"}
"""pyarrow types as error messages name them."""
DECIMAL_COMMA = r"^([-+]?[0-9]*),([0-9]+)$"
"""A cell that is a number with a decimal comma."""


def read_table(
    given: PathOrPaths,
    *,
    string_columns: Collection[str] = (),
    chunk_bytes: int = CHUNK_BYTES,
    keep_spelling: bool = False,
) -> Iterator[pa.Table]:
    """Read one or more files of one table in chunks: CSV, TSV or JSON (also .gz or .zst), Excel, Parquet or Arrow.

    `string_columns` are read as text whatever they look like, for example codes with leading zeros. All files must have
    the same columns. Numbers in string columns get a decimal point, unless `keep_spelling` is set.

    >>> _ = Path("people.csv").write_text("name,age\\nAnn,31\\nBob,\\n")
    >>> [chunk.to_pylist() for chunk in read_table("people.csv")]
    [[{'name': 'Ann', 'age': 31.0}, {'name': 'Bob', 'age': None}]]
    """
    schema: pa.Schema | None = None
    for path in find_files(given):
        with file_errors(path):
            for table in _read_chunks(path, schema, frozenset(string_columns), chunk_bytes, keep_spelling):
                schema = schema or table.schema
                yield _cast_to_schema(path, table, schema)


def _read_chunks(
    path: Path, schema: pa.Schema | None, string_columns: frozenset[str], chunk_bytes: int, keep_spelling: bool
) -> Iterator[pa.Table]:
    extension = file_extension(path)
    if extension in PARQUET:
        return _read_binary(path, string_columns, _read_parquet(path))
    if extension in ARROW:
        return _read_binary(path, string_columns, _read_arrow(path))
    if holds_objects(path):
        table = read_objects(path, string_columns)
        return iter([table.cast(_stable_schema(table.schema, string_columns))])
    if extension in JSON:
        return _read_json(path, schema, string_columns, chunk_bytes)
    return _read_csv(path, schema, string_columns, chunk_bytes, keep_spelling)


def _read_csv(
    path: Path, schema: pa.Schema | None, string_columns: frozenset[str], chunk_bytes: int, keep_spelling: bool
) -> Iterator[pa.Table]:
    delimiter = detect_delimiter(path)
    parse = arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    # without threads, so that errors know their row
    read = arrow_csv.ReadOptions(use_threads=False, block_size=min(chunk_bytes, BLOCK))

    def open_reader(types: dict[str, pa.DataType], decimal_point: str) -> arrow_csv.CSVStreamingReader:
        convert = arrow_csv.ConvertOptions(strings_can_be_null=True, column_types=types, decimal_point=decimal_point)
        return arrow_csv.open_csv(_open_file(path), read_options=read, parse_options=parse, convert_options=convert)

    names, consumed = list[str](), 0
    try:
        plain = open_reader({}, ".").schema
        names = plain.names
        check_unique_names(names, path)
        comma = delimiter != "," and _count_numeric(open_reader({}, ",").schema) > _count_numeric(plain)
        point = "," if comma else "."
        final = schema or _stable_schema(
            open_reader(dict.fromkeys(string_columns, pa.string()), point).schema, string_columns
        )
        for batch in open_reader({field.name: field.type for field in final}, point):
            consumed += batch.nbytes // MAX_EMPTY_CELL_BYTES
            if compression_of(path):
                check_growth(path, consumed, consumed=path.stat().st_size)
            table = pa.Table.from_batches([batch])
            yield _use_decimal_points(table) if comma and not keep_spelling else table
    except UnicodeDecodeError:
        raise _encoding_error(path, 1) from None  # in the header; pyarrow reports cells itself
    except pa.ArrowInvalid as error:
        raise _parse_error(path, error, names, first_row=-1) from None


def _open_file(path: Path) -> pa.NativeFile:
    """A file opened by pyarrow alone: its read-ahead threads must not wait for Python while the interpreter exits."""
    file, compression = pa.OSFile(str(path)), compression_of(path)
    return file if compression is None else pa.CompressedInputStream(file, compression)


def _read_json(
    path: Path, schema: pa.Schema | None, string_columns: frozenset[str], chunk_bytes: int
) -> Iterator[pa.Table]:
    rows, converted = 0, set[str]()
    for block in _split_at_lines(open_stream(path), chunk_bytes):
        explicit = pa.schema([(name, pa.string()) for name in sorted(string_columns)]) if schema is None else schema
        try:
            table = _parse_json(block, explicit, string_columns, converted)
            if schema is None:
                schema = _stable_schema(table.schema, string_columns)
                table = table.cast(schema)
        except pa.ArrowInvalid as error:
            raise _parse_error(path, error, [], first_row=rows) from None
        yield table
        rows += table.num_rows


def _parse_json(block: bytes, explicit: pa.Schema, string_columns: frozenset[str], converted: set[str]) -> pa.Table:
    """JSON objects as a table. String columns that hold numbers or booleans join `converted` and are formatted."""
    fields = [field for field in explicit if field.name not in converted]
    options = arrow_json.ReadOptions(use_threads=False, block_size=1 << 30)
    parse = arrow_json.ParseOptions(explicit_schema=pa.schema(fields) if fields else None)
    try:
        table = arrow_json.read_json(pa.BufferReader(block), read_options=options, parse_options=parse)
    except pa.ArrowInvalid as error:
        changed = re.search(r"Column\(/(.+)\) changed from string to (number|boolean)", str(error))
        if changed is None or changed[1] not in string_columns - converted:
            raise
        converted.add(changed[1])
        return _parse_json(block, explicit, string_columns, converted)
    for name in converted & set(table.column_names):
        strings = to_strings(table.column(name).combine_chunks()).cast(pa.string())
        table = table.set_column(table.column_names.index(name), name, strings)
    return table


def _read_binary(path: Path, string_columns: frozenset[str], tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Tables with the file's own types; only `string_columns` become strings."""
    try:
        for table in tables:
            fields = [
                pa.field(field.name, pa.string() if field.name in string_columns else field.type)
                for field in table.schema
            ]
            yield table.cast(pa.schema(fields))
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"the file is damaged, or its extension does not match: {str(error):.200}", file=path) from None


def _read_parquet(path: Path) -> Iterator[pa.Table]:
    with pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False) as file:
        check_unique_names(file.schema_arrow.names, path)
    for batch in parquet_batches(path, PARQUET_ROWS, safe_bytes=MAX_DECODED_BYTES):
        yield pa.Table.from_batches([batch])


def _read_arrow(path: Path) -> Iterator[pa.Table]:
    with pa.memory_map(str(path)) as source:
        is_file = source.read(6) == b"ARROW1"
        source.seek(0)
        reader: Any = pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)
        check_unique_names(reader.schema.names, path)
        batches = (reader.get_batch(index) for index in range(reader.num_record_batches)) if is_file else reader
        for batch in batches:
            yield pa.Table.from_batches([batch])


def _stable_schema(schema: pa.Schema, string_columns: frozenset[str]) -> pa.Schema:
    """Types wide enough for later chunks."""
    return pa.schema(
        [(field.name, pa.string() if field.name in string_columns else _widen(field.type)) for field in schema]
    )


def _count_numeric(schema: pa.Schema) -> int:
    return sum(pa.types.is_floating(field.type) or pa.types.is_integer(field.type) for field in schema)


def _use_decimal_points(table: pa.Table) -> pa.Table:
    """Numbers in string columns with a decimal point."""
    for index, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            strings = pc.replace_substring_regex(table.column(index), pattern=DECIMAL_COMMA, replacement=r"\1.\2")
            table = table.set_column(index, field.name, strings)
    return table


def _widen(dtype: pa.DataType) -> pa.DataType:
    if pa.types.is_integer(dtype):
        return pa.float64()
    if pa.types.is_null(dtype) or pa.types.is_binary(dtype):
        return pa.string()
    if pa.types.is_date(dtype) or pa.types.is_timestamp(dtype):
        return pa.timestamp("us", getattr(dtype, "tz", None))
    return dtype


def _cast_to_schema(path: Path, table: pa.Table, schema: pa.Schema) -> pa.Table:
    """A chunk with the columns and types of the first file."""
    expected, own = dict.fromkeys(schema.names), dict.fromkeys(table.column_names)  # there may be thousands
    absent = [name for name in expected if name not in own]
    extra = [name for name in own if name not in expected]
    if absent or extra:
        missing = f"; missing: {join_names(absent)}" if absent else ""
        additional = f"; additional: {join_names(extra)}" if extra else ""
        raise DataError(f"the columns differ from those of the first file{missing}{additional}", file=path)
    try:
        return table.select(list(expected)).cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(f"a column has another type than in the first file: {str(error):.200}", file=path) from None


def _parse_error(path: Path, error: Exception, names: list[str], *, first_row: int) -> DataError:
    """pyarrow's error with the line of its row; `first_row` is the number of the first row that pyarrow counts."""
    message = re.sub(r"(CSV|JSON) parse error: |Row #\d+: | in row \d+$", "", str(error))
    row = re.search(r"[Rr]ow #?(\d+)", str(error))
    line = line_of_record(path, first_row + int(row[1])) if row else None
    if "invalid UTF8" in message:
        return _encoding_error(path, line)
    conversion = re.search(r"column #(\d+): CSV conversion error to (\w+).*: invalid value '(.*)'$", message)
    help = "correct the cell, or read its column as text: string_columns=['its name'], or --column-types name=text"
    if conversion and int(conversion[1]) < len(names):
        name = names[int(conversion[1])]
        held = TYPE_NAMES.get(conversion[2], conversion[2])
        message = f"column {name!r:.80}: expected {held}, got {conversion[3]!r:.60}"
        flag = shlex.quote(f"{name}=category")
        help = (
            f"correct or empty the cell; before training, string_columns=[{name!r}], or --column-types {flag}, "
            "accepts any string"
        )
    if re.match(r"Expected \d+ columns", message):
        message, *more = message.split("\n")
        help = "give every line as many cells as the first one"
        if more and message.count('"') % 2:
            help = "a quotation mark is opened here and never closed: close it, or double it for a literal one"
    return DataError(f"this does not match the rows before it: {message:.200}", file=path, line=line, help=help)


def _encoding_error(path: Path, line: int | None) -> DataError:
    return DataError("the file is not UTF-8", file=path, line=line, help=iconv_command(path))


def _split_at_lines(blocks: Iterable[bytes], chunk_bytes: int) -> Iterator[bytes]:
    """Blocks of about `chunk_bytes` that end at line ends."""
    buffered = bytearray()
    for block in blocks:
        buffered += block
        end = buffered.rfind(b"\n") + 1
        if len(buffered) >= chunk_bytes and end:
            yield bytes(buffered[:end])
            del buffered[:end]
    if buffered.strip():
        yield bytes(buffered)
