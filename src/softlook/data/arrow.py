"""pyarrow: Parquet in batches of bounded memory, zstd.

A few bytes of Parquet can decode to gigabytes: a value stored once may stand in every row, and a page of repeated bytes
compresses to almost nothing. So repeated text stays dictionary-encoded until its decoded size is known, and declared
sizes are checked before anything is read.
"""

from collections.abc import Iterator, Sequence
from io import BufferedReader
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from softlook.base.errors import DataError
from softlook.data.streams import MAX_EXPANSION, check_growth

pc: Any = pyarrow.compute  # its functions are made at import, where no type checker sees them
BATCH_ROWS = 512
"""Rows in memory at a time."""
BATCH_BYTES = 64 << 20
"""Bytes of decoded rows in memory at a time."""
READ_OPTIONS: dict[str, Any] = {"buffer_size": 1 << 20, "pre_buffer": False, "page_checksum_verification": True}
"""Column by column through a buffer: a row group may be larger than memory."""


def decompress_zstd(raw: BufferedReader) -> pa.NativeFile:
    """The decompressed stream of a zstd file. Unlike other readers it notices truncated files."""
    return pa.CompressedInputStream(raw, "zstd")


def parquet_columns(path: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns of text or numbers, and the others with their types. Fields of a struct are columns of their own."""
    with _open(path) as file:
        fields = [field for top in file.schema_arrow for field in _flatten(top)]
    supported = tuple(field.name for field in fields if _is_supported(field.type))
    return supported, tuple(f"{field.name} ({field.type})" for field in fields if not _is_supported(field.type))


def parquet_schema(path: Path) -> pa.Schema:
    """The columns of a Parquet file and their types."""
    with _open(path) as file:
        return file.schema_arrow


def parquet_rows(path: Path, columns: tuple[str, ...]) -> Iterator[dict[str, Any] | UnicodeDecodeError]:
    """The rows of some columns; the decoding error for a row with invalid text."""
    with _open(path):
        try:
            for batch in parquet_batches(path, BATCH_ROWS, columns=list(columns)):
                yield from _iterate_rows(pa.Table.from_batches([batch]).flatten())
        except (pa.ArrowException, OSError) as error:
            raise damaged_error(path, error) from None


def parquet_batches(
    path: Path,
    rows: int,
    *,
    columns: list[str] | None = None,
    row_groups: Sequence[int] | None = None,
    safe_bytes: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Batches of at most `rows` rows and about 64 MiB, of all row groups by default.

    Raises DataError if the rows decode to more than 200 times the file's size and more than `safe_bytes` bytes (16 MiB
    by default).
    """
    decoded, size = 0, path.stat().st_size
    with pq.ParquetFile(path) as file:
        text = [field.name for field in file.schema_arrow if is_text(field.type)]
    with pq.ParquetFile(path, read_dictionary=text, **READ_OPTIONS) as file:
        _check_declared(path, file.metadata)
        for batch in file.iter_batches(rows, columns=columns, row_groups=row_groups, use_threads=False):
            row_bytes, total = _decoded_bytes(batch, text)
            decoded += total
            check_growth(path, decoded, consumed=size, safe_bytes=safe_bytes)
            step = batch.num_rows if total <= BATCH_BYTES else max(1, BATCH_BYTES // row_bytes)
            for start in range(0, batch.num_rows, max(step, 1)):
                yield _decode(batch.slice(start, step), text)


def _open(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path, **READ_OPTIONS)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise damaged_error(path, error) from None


def damaged_error(path: Path, error: Exception) -> DataError:
    """The error for a file that cannot be read."""
    return DataError(
        f"this Parquet file is damaged, or not Parquet: {str(error):.200}",
        file=path,
        help="write it again, or copy it again completely: its metadata is at its end",
    )


def _iterate_rows(table: pa.Table) -> Iterator[dict[str, Any] | UnicodeDecodeError]:
    try:
        yield from table.to_pylist()
    except UnicodeDecodeError as error:
        if table.num_rows == 1:
            yield error
        else:
            for number in range(table.num_rows):
                yield from _iterate_rows(table.slice(number, 1))


def _flatten(field: pa.Field) -> list[pa.Field]:
    return field.flatten() if pa.types.is_struct(field.type) else [field]


def _is_supported(type: pa.DataType) -> bool:
    type, types = type.value_type if pa.types.is_dictionary(type) else type, pa.types
    tests = (types.is_string, types.is_large_string, types.is_string_view, types.is_integer, types.is_floating)
    return any(test(type) for test in (*tests, types.is_boolean, types.is_null))


def is_text(type: pa.DataType) -> bool:
    return pa.types.is_string(type) or pa.types.is_large_string(type)


def _check_declared(path: Path, metadata: pq.FileMetaData) -> None:
    """Reject pages that would decompress to far more than their size, before any is decompressed."""
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for index in range(group.num_columns):
            column = group.column(index)
            if column.total_uncompressed_size > max(BATCH_BYTES, MAX_EXPANSION * column.total_compressed_size):
                raise DataError(
                    f"column {column.path_in_schema!r:.80} declares {column.total_uncompressed_size:,} bytes, "
                    f"compressed to {column.total_compressed_size:,}",
                    file=path,
                    why="no text or table compresses so well: the file repeats itself, or was made to exhaust memory",
                    help="write the file again without the repeated values, if it is what you want",
                )


def _decoded_bytes(batch: pa.RecordBatch, text: list[str]) -> tuple[int, int]:
    """Bytes of the largest row's texts, and of the whole batch once its dictionaries are decoded."""
    largest, total = 1, 0
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name in text and pa.types.is_dictionary(column.type):
            lengths = pc.binary_length(column.dictionary).take(column.indices)
            largest += pc.max(lengths).as_py() or 0
            total += pc.sum(lengths).as_py() or 0
        else:
            total += column.nbytes
    return largest, total


def _decode(batch: pa.RecordBatch, text: list[str]) -> pa.RecordBatch:
    columns = [
        column.dictionary_decode() if name in text and pa.types.is_dictionary(column.type) else column
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


class VectorFile:
    """A new Parquet file of texts and their embeddings, written in batches."""

    def __init__(self, path: Path, dim: int) -> None:
        self.dim = dim
        self.schema = pa.schema([("text", pa.string()), ("embedding", pa.list_(pa.float32(), dim))])
        self.writer = pq.ParquetWriter(path, self.schema)

    def add(self, texts: list[str], values: bytes) -> None:
        """Append texts, and all values of their vectors as float32 bytes."""
        flat = pa.Array.from_buffers(pa.float32(), len(texts) * self.dim, [None, pa.py_buffer(values)])
        columns = [pa.array(texts, pa.string()), pa.FixedSizeListArray.from_arrays(flat, self.dim)]
        self.writer.write_batch(pa.record_batch(columns, schema=self.schema))

    def close(self) -> None:
        """Finish the file."""
        self.writer.close()
