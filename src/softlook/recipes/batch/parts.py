"""Parts of a batch job: consecutive row groups of a Parquet file, each with an output file of its own."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from softlook.base.errors import DataError
from softlook.data.arrow import parquet_schema
from softlook.data.files import files_below

MIN_PART_ROWS = 65_536
"""Row groups are joined until a part has as many rows."""
FOOTER_LENGTH_BYTES = 8
"""A Parquet file ends with the length of its footer and four letters."""


@dataclass(frozen=True)
class InputPart:
    """Row groups of a file, and the file with their predictions. Paths are relative to the two folders."""

    file: str
    row_groups: range
    first_row: int
    """Position of the first row in the whole input."""
    rows: int
    output: str


@dataclass(frozen=True)
class ParquetInput:
    """A Parquet file of the input."""

    path: Path
    name: str
    """Its path relative to the input folder."""
    schema: pa.Schema
    fingerprint: str
    """Of its size, modification time and footer."""


def list_files(folder: Path) -> list[ParquetInput]:
    """The Parquet files below a folder, sorted. Names that start with a dot or an underscore are skipped."""
    if not folder.is_dir():
        raise DataError("expected a folder of Parquet files", file=folder)
    paths = [path for path in files_below(folder) if path.suffix == ".parquet" and not path.name.startswith("_")]
    if not paths:
        raise DataError("this folder has no .parquet files", file=folder)
    return [
        ParquetInput(path, path.relative_to(folder).as_posix(), parquet_schema(path), _fingerprint(path))
        for path in paths
    ]


def list_parts(files: list[ParquetInput]) -> list[InputPart]:
    """The parts of files, in order."""
    parts: list[InputPart] = []
    for file in files:
        stem = file.name.removesuffix(".parquet")
        for number, (groups, rows) in enumerate(_join_row_groups(file.path)):
            first_row = parts[-1].first_row + parts[-1].rows if parts else 0
            parts.append(InputPart(file.name, groups, first_row, rows, f"{stem}-{number:05}.parquet"))
    return parts


def _join_row_groups(path: Path) -> Iterator[tuple[range, int]]:
    """Consecutive row groups that are large enough together, and their rows; a file without row groups is one part."""
    metadata = pq.read_metadata(path)
    start, rows = 0, 0
    for group in range(metadata.num_row_groups):
        rows += metadata.row_group(group).num_rows
        if rows >= MIN_PART_ROWS:
            yield range(start, group + 1), rows
            start, rows = group + 1, 0
    if start < metadata.num_row_groups or not start:
        yield range(start, metadata.num_row_groups), rows


def _fingerprint(path: Path) -> str:
    status = path.stat()
    with path.open("rb") as file:
        file.seek(-FOOTER_LENGTH_BYTES, os.SEEK_END)
        length = int.from_bytes(file.read(4), "little")
        file.seek(-FOOTER_LENGTH_BYTES - length, os.SEEK_END)
        footer = file.read(length)
    return sha256(f"{status.st_size} {status.st_mtime_ns} ".encode() + footer).hexdigest()
