"""File writers for embeddings and table predictions."""

import csv
import json
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TextIO, TypeVar

from softlook.base.errors import ConfigError, escape_control
from softlook.data.streams import load_arrow
from softlook.weights.atomic_folder import check_not_exists, disk_errors

if TYPE_CHECKING:
    from torch import Tensor

NPY_HEADER_BYTES = 128
"""Header size of a .npy file: enough for any shape, which is known only at the end."""
FLOAT_DIGITS = 7
"""Significant digits of a float32."""
PredictionColumns = dict[str, list[Any] | dict[str, list[Any]]]
"""Columns by name; probabilities and attention are dicts of columns."""
NESTED_NAMES = {"probabilities": "P({})", "attention": "attention({})"}
"""Names of nested columns in a flat table."""


class FileWriter:
    """Writes to a file piece by piece."""

    def __init__(self, file: IO[Any]) -> None:
        self.file = file

    def close(self) -> None:
        self.file.close()


Writer = TypeVar("Writer", bound="FileWriter | ParquetEmbeddings | ParquetPredictions")


@contextmanager
def new_file(path: Path, writers: Mapping[str, Callable[[Path], Writer]], what: str) -> Iterator[Writer]:
    """Write a new file atomically, in the format of its suffix. An existing file is not overwritten."""
    if path.suffix not in writers:
        raise ConfigError(f"{what} can be written as {', '.join(writers)}; got {path.name!r:.80}")
    check_not_exists(path)
    partial = path.with_name(f".{path.name}.partial")
    with disk_errors("write", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        writer = writers[path.suffix](partial)
        try:
            yield writer
            writer.close()
            check_not_exists(path)
            partial.rename(path)
        except BaseException:
            with suppress(Exception):
                writer.close()
            partial.unlink(missing_ok=True)
            raise


@contextmanager
def embedding_file(path: Path | None) -> Iterator["NpyEmbeddings | ParquetEmbeddings | JsonlEmbeddings"]:
    """A new .npy, .parquet or .jsonl file; or stdout, as JSON lines."""
    if path is None:
        yield JsonlEmbeddings(sys.stdout)
        return
    writers: dict[str, Callable[[Path], NpyEmbeddings | ParquetEmbeddings | JsonlEmbeddings]] = {
        ".npy": lambda path: NpyEmbeddings(path.open("wb")),
        ".parquet": ParquetEmbeddings,
        ".jsonl": lambda path: JsonlEmbeddings(path.open("w", encoding="utf-8")),
    }
    with new_file(path, writers, "embeddings") as writer:
        yield writer


class NpyEmbeddings(FileWriter):
    """A float32 matrix, as `numpy.load` reads it."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file)
        self.rows = self.width = 0
        self.file.write(bytes(NPY_HEADER_BYTES))

    def add(self, texts: Sequence[str], vectors: "Tensor") -> None:
        self.rows, self.width = self.rows + len(vectors), vectors.shape[1]
        self.file.write(_float32_bytes(vectors))

    def close(self) -> None:
        header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({self.rows}, {self.width}), }}"
        size, padded = NPY_HEADER_BYTES - 10, header.ljust(NPY_HEADER_BYTES - 11).encode() + b"\n"
        self.file.seek(0)
        self.file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", size) + padded)
        self.file.close()


class ParquetEmbeddings:
    """A table of texts and embeddings."""

    def __init__(self, path: Path) -> None:
        self.path, self.file = path, None

    def add(self, texts: Sequence[str], vectors: "Tensor") -> None:
        if self.file is None:
            self.file = load_arrow(self.path).VectorFile(self.path, vectors.shape[1])
        self.file.add(list(texts), _float32_bytes(vectors))

    def close(self) -> None:
        if self.file is None:
            raise ConfigError("there are no texts, so the width of the table is unknown")
        self.file.close()


class JsonlEmbeddings(FileWriter):
    """One JSON object per line."""

    def add(self, texts: Sequence[str], vectors: "Tensor") -> None:
        for text, vector in zip(texts, vectors.tolist(), strict=True):
            content = {"text": text, "embedding": [_round(number) for number in vector]}
            self.file.write(json.dumps(content, ensure_ascii=False) + "\n")
        self.file.flush()


def _float32_bytes(vectors: "Tensor") -> bytes:
    """Little-endian float32: the memory layout on all machines torch supports."""
    return vectors.detach().float().numpy().tobytes()


@contextmanager
def prediction_file(
    path: Path | None, *, is_json: bool
) -> Iterator["CsvPredictions | JsonlPredictions | ParquetPredictions"]:
    """A new .csv, .tsv, .jsonl or .parquet file; or stdout, as CSV or JSON lines."""
    if path is None:
        yield JsonlPredictions(sys.stdout) if is_json else CsvPredictions(sys.stdout, ",")
        return
    writers: dict[str, Callable[[Path], CsvPredictions | JsonlPredictions | ParquetPredictions]] = {
        ".csv": lambda path: CsvPredictions(path.open("w", encoding="utf-8", newline=""), ","),
        ".tsv": lambda path: CsvPredictions(path.open("w", encoding="utf-8", newline=""), "\t"),
        ".jsonl": lambda path: JsonlPredictions(path.open("w", encoding="utf-8")),
        ".parquet": ParquetPredictions,
    }
    with new_file(path, writers, "predictions") as writer:
        yield writer


class CsvPredictions(FileWriter):
    """A header and a line per row."""

    def __init__(self, file: TextIO, delimiter: str) -> None:
        super().__init__(file)
        self.has_header = False
        self.writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
        self.escape = escape_control if file.isatty() else str

    def add(self, columns: PredictionColumns) -> None:
        flat = flatten(columns)
        if not self.has_header:
            self.writer.writerow(map(self.escape, flat))
            self.has_header = True
        self.writer.writerows([self.escape(_to_text(cell)) for cell in row] for row in zip(*flat.values(), strict=True))
        self.file.flush()


class JsonlPredictions(FileWriter):
    """A JSON object per row."""

    def add(self, columns: PredictionColumns) -> None:
        for row in range(len(next(iter(flatten(columns).values())))):
            content = {name: _cell(values, row) for name, values in columns.items()}
            self.file.write(json.dumps(content, ensure_ascii=False, default=str) + "\n")
        self.file.flush()


class ParquetPredictions:
    """A Parquet table."""

    def __init__(self, path: Path) -> None:
        self.path, self.file = path, None

    def add(self, columns: PredictionColumns) -> None:
        import pyarrow as pa  # noqa: PLC0415  (an extra)
        import pyarrow.parquet as pq  # noqa: PLC0415

        table = pa.table(flatten(columns))
        if self.file is None:
            self.file = pq.ParquetWriter(self.path, table.schema)
        self.file.write_table(table.cast(self.file.schema))

    def close(self) -> None:
        if self.file is None:
            raise ConfigError("there are no rows, so the columns of the table are unknown")
        self.file.close()


def flatten(columns: PredictionColumns) -> dict[str, list[Any]]:
    """Nested columns as columns of their own.

    >>> flatten({"buys": ["yes"], "probabilities": {"no": [0.2], "yes": [0.8]}})
    {'buys': ['yes'], 'P(no)': [0.2], 'P(yes)': [0.8]}
    """
    flat: dict[str, list[Any]] = {}
    for name, values in columns.items():
        if isinstance(values, dict):
            flat |= {NESTED_NAMES[name].format(key): column for key, column in values.items()}
        else:
            flat[name] = values
    return flat


def _cell(values: list[Any] | dict[str, list[Any]], row: int) -> Any:
    if isinstance(values, dict):
        return {key: _round(column[row]) for key, column in values.items()}
    return _round(values[row])


def _round(cell: Any) -> Any:
    return float(f"{cell:.{FLOAT_DIGITS}g}") if isinstance(cell, float) else cell


def _to_text(cell: Any) -> str:
    if cell is None:
        return ""
    return f"{cell:.{FLOAT_DIGITS}g}" if isinstance(cell, float) else str(cell)
