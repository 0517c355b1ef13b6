"""Parquet files in batches of bounded memory, however much a file of a few bytes decodes to.

A value that a file stores once may stand in every row, and a page of repeated bytes compresses to almost nothing. So
repeated text stays a dictionary until its decoded size is known, and what a file declares is checked before it is read.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from softlook.base.errors import DataError
from softlook.data.opening import EXPANSION, check_growth

pc: Any = pyarrow.compute  # its functions are made at import, where no type checker sees them
BATCH_BYTES = 64 << 20
"""Bytes of decoded rows in memory at a time."""


def parquet_batches(
    path: Path, rows: int, *, columns: list[str] | None = None, harmless: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Batches of at most `rows` rows and about 64 MiB.

    Raises DataError where the rows decode to more than 200 times the file's size and more than `harmless` bytes (16 MiB
    by default).
    """
    decoded, size = 0, path.stat().st_size
    with pq.ParquetFile(path) as file:
        text = [field.name for field in file.schema_arrow if _is_text(field.type)]
    # Column by column through a buffer: a row group may be larger than memory.
    options = {"buffer_size": 1 << 20, "pre_buffer": False, "page_checksum_verification": True}
    with pq.ParquetFile(path, read_dictionary=text, **options) as file:
        _check_declared(path, file.metadata)
        for batch in file.iter_batches(rows, columns=columns, use_threads=False):
            row_bytes, total = _decoded_bytes(batch, text)
            decoded += total
            check_growth(path, decoded, consumed=size, harmless=harmless)
            step = batch.num_rows if total <= BATCH_BYTES else max(1, BATCH_BYTES // row_bytes)
            for start in range(0, batch.num_rows, max(step, 1)):
                yield _decode(batch.slice(start, step), text)


def _check_declared(path: Path, metadata: pq.FileMetaData) -> None:
    """Refuse pages that would decompress to far more than they are, before any of them is decompressed."""
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for place in range(group.num_columns):
            column = group.column(place)
            if column.total_uncompressed_size > max(BATCH_BYTES, EXPANSION * column.total_compressed_size):
                raise DataError(
                    f"column {column.path_in_schema!r:.80} declares {column.total_uncompressed_size:,} bytes, "
                    f"compressed to {column.total_compressed_size:,}",
                    file=path,
                    why="no text or table compresses so well: the file repeats itself, or was made to fill a memory",
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


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)
