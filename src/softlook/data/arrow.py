"""pyarrow, and nothing else of softlook touches it: Parquet files, and files packed with zstd."""

from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from softlook.base.errors import DataError
from softlook.data.parquet import parquet_batches

ROWS = 512
"""Rows that are in memory at a time."""


def unpack_zstd(raw: BufferedReader) -> pa.NativeFile:
    """The bytes a zstd file was made of. It notices a file that was cut off, which other readers do not."""
    return pa.CompressedInputStream(raw, "zstd")


def parquet_columns(path: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns that hold text or numbers, and the others with their types. The parts of a struct count alone."""
    with _opened(path) as file:
        fields = [field for top in file.schema_arrow for field in _flat(top)]
    plain = tuple(field.name for field in fields if _is_plain(field.type))
    return plain, tuple(f"{field.name} ({field.type})" for field in fields if not _is_plain(field.type))


def parquet_rows(path: Path, columns: tuple[str, ...]) -> Iterator[dict[str, Any] | UnicodeDecodeError]:
    """Row by row, the values of some columns; where a value is no text although it should be, what Python says."""
    with _opened(path):
        try:
            for batch in parquet_batches(path, ROWS, columns=list(columns)):
                yield from _rows(pa.Table.from_batches([batch]).flatten())
        except (pa.ArrowException, OSError) as fault:
            raise _damaged(path, fault) from None


def _opened(path: Path) -> pq.ParquetFile:
    try:
        # Column by column through a buffer: a row group may be larger than memory.
        return pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False, page_checksum_verification=True)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, ValueError) as fault:
        raise _damaged(path, fault) from None


def _damaged(path: Path, fault: Exception) -> DataError:
    return DataError(
        f"this Parquet file is damaged, or none: {str(fault):.200}",
        file=path,
        help="write it again, or copy it again in full: its table of contents lies at its end",
    )


def _rows(table: pa.Table) -> Iterator[dict[str, Any] | UnicodeDecodeError]:
    try:
        yield from table.to_pylist()
    except UnicodeDecodeError:
        for number in range(table.num_rows):
            yield _row(table, number)


def _row(table: pa.Table, number: int) -> dict[str, Any] | UnicodeDecodeError:
    try:
        return {name: table.column(name)[number].as_py() for name in table.column_names}
    except UnicodeDecodeError as fault:
        return fault


def _flat(field: pa.Field) -> list[pa.Field]:
    return field.flatten() if pa.types.is_struct(field.type) else [field]


def _is_plain(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    types = pa.types
    tests = (types.is_string, types.is_large_string, types.is_string_view, types.is_integer, types.is_floating)
    return any(test(kind) for test in (*tests, types.is_boolean, types.is_null))


class VectorFile:
    """A new Parquet file of texts and their vectors, written as they come."""

    def __init__(self, path: Path, width: int) -> None:
        self.width = width
        self.schema = pa.schema([("text", pa.string()), ("vector", pa.list_(pa.float32(), width))])
        self.writer = pq.ParquetWriter(path, self.schema)

    def add(self, texts: list[str], numbers: bytes) -> None:
        """Some texts, and all numbers of their vectors as floats of four bytes."""
        flat = pa.Array.from_buffers(pa.float32(), len(texts) * self.width, [None, pa.py_buffer(numbers)])
        columns = [pa.array(texts, pa.string()), pa.FixedSizeListArray.from_arrays(flat, self.width)]
        self.writer.write_batch(pa.record_batch(columns, schema=self.schema))

    def close(self) -> None:
        """Finish it."""
        self.writer.close()
