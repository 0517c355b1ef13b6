"""Rows of a fit: validation split, and storage in memory or shuffled in files on disk."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch

from softlook.tabular.io.chunked import ChunkedTable, TargetColumns
from softlook.tabular.io.frames import to_frame
from softlook.tabular.preprocessing.reservoir import Reservoir
from softlook.tabular.preprocessing.rows import TableTensors, concat_rows
from softlook.tabular.preprocessing.target_stats import TargetStats

DEFAULT_MEMORY_LIMIT = 1 << 30
"""Bytes."""
FIELDS = ("numbers", "categories", "targets", "weight")
"""Of a stored row, in the order of `TableTensors`."""
MAX_VALIDATION_ROWS = 100_000
"""Validation rows of a chunked table: more would take long and add no precision."""


def validation_mask(rows: int, fraction: float, *, seed: int, codes: np.ndarray | None = None) -> np.ndarray:
    """True for validation rows. With `codes` the split is stratified; a class of one row stays in training.

    >>> validation_mask(10, 0.2, seed=0).sum()
    np.int64(2)
    >>> mask = validation_mask(100, 0.2, seed=0, codes=np.repeat([0, 1], [90, 10]))
    >>> mask[:90].sum(), mask[90:].sum()
    (np.int64(18), np.int64(2))
    """
    order = np.random.RandomState(seed).permutation(rows)
    codes = np.zeros(rows, dtype=np.int64) if codes is None else codes
    by_class = order[np.argsort(codes[order], kind="stable")]  # class after class, each shuffled
    counts = np.bincount(codes)
    rank = np.arange(rows) - np.repeat(np.cumsum(counts) - counts, counts)
    taken = np.minimum(np.floor(counts * fraction + 0.5), np.maximum(counts - 1, 0))
    mask = np.zeros(rows, dtype=bool)
    mask[by_class] = rank < np.repeat(taken, counts)
    return mask


@dataclass(frozen=True)
class MemoryBudget:
    """Bytes that a table may occupy: as read, as tensors, and the window of rows on disk that is in memory.

    >>> MemoryBudget.of(1e9).window
    125000000
    """

    table: int
    tensors: int
    window: int

    @staticmethod
    def of(limit: float | None) -> "MemoryBudget":
        """Fractions of a limit: each is in memory together with what is made from it."""
        limit = int(DEFAULT_MEMORY_LIMIT if limit is None else limit)
        return MemoryBudget(limit // 4, limit // 2, limit // 8)


class RowStore:
    """Collects rows, as tensors if they fit the budget, otherwise in files of a folder."""

    def __init__(self, folder: Path, *, expected_rows: int, budget: MemoryBudget, max_code: int, seed: int) -> None:
        self.folder, self.expected_rows, self.budget = folder, expected_rows, budget
        self.code_dtype = np.min_scalar_type(max_code)
        self.rng = np.random.default_rng(seed)
        self.in_memory: list[TableTensors] = []
        self.dtype: np.dtype | None = None
        self.counts = np.zeros(0, np.int64)
        self.weight_sum = 0.0

    def add(self, rows: TableTensors) -> None:
        """Add a chunk."""
        if not len(rows):
            return
        row_bytes = sum(tensor.nbytes for tensor in rows.tensors() if tensor is not None) / len(rows)
        is_too_large = self.expected_rows * row_bytes > self.budget.tensors
        if self.dtype is None and not self.in_memory and is_too_large:
            self.dtype = _record_dtype(rows, self.code_dtype)
            size = self.expected_rows * self.dtype.itemsize
            self.counts = np.zeros(max(2, -(-size // max(1, self.budget.window // 4))), np.int64)
        if self.dtype is None:
            self.in_memory.append(rows)
        else:
            self._write(_to_records(rows, self.dtype))

    def rows(self) -> "TableTensors | DiskRows | None":
        """All rows; None if there are none."""
        if self.dtype is not None:
            counts = tuple(self.counts.tolist())
            mean_weight = self.weight_sum / sum(counts)
            return DiskRows(self.folder, self.dtype, counts, self.budget.window, mean_weight)
        return concat_rows(self.in_memory) if self.in_memory else None

    def _write(self, records: np.ndarray) -> None:
        """Assign each row to a random file, so that every file is a sample of the whole table."""
        file_indices = self.rng.integers(len(self.counts), size=len(records))
        grouped = records[np.argsort(file_indices, kind="stable")]
        counts = np.bincount(file_indices, minlength=len(self.counts))
        ends = np.cumsum(counts)
        for index in np.flatnonzero(counts).tolist():
            with _file(self.folder, index).open("ab") as file:
                file.write(grouped[ends[index] - counts[index] : ends[index]].tobytes())
        self.counts += counts
        self.weight_sum += float(records["weight"].sum(dtype=np.float64))


@dataclass(frozen=True)
class DiskRows:
    """Rows in files, each file a random sample. An epoch reads the files in random order.

    As many files as fit the window are shuffled together, in new combinations each epoch.
    """

    folder: Path
    dtype: np.dtype
    counts: tuple[int, ...]
    """Rows of each file."""
    window: int
    """Bytes in memory at a time."""
    mean_weight: float
    """Mean sample weight."""
    device: torch.device = torch.device("cpu")

    def __len__(self) -> int:
        return sum(self.counts)

    def to(self, device: torch.device) -> "DiskRows":
        """The rows with batches on another device."""
        return replace(self, device=device)

    def normalize_weights(self) -> "DiskRows":
        """The rows themselves: weights are normalized when they are read."""
        return self

    def batches(self, size: int, generator: torch.Generator, start: int = 0) -> Iterator[TableTensors]:
        """All rows once in shuffled batches, skipping the first `start` rows of that order."""
        return map(self._to_tensors, islice(self._shuffled(size, generator), start // size, None))

    def _shuffled(self, size: int, generator: torch.Generator) -> Iterator[np.ndarray]:
        rest = np.zeros(0, self.dtype)
        for files in self._windows(torch.randperm(len(self.counts), generator=generator).tolist()):
            records = np.concatenate([rest, *map(self._read, files)])
            order = torch.randperm(len(records), generator=generator).numpy()
            full = len(records) // size * size
            for at in range(0, full, size):
                yield records[order[at : at + size]]
            rest = records[order[full:]]
        if len(rest):
            yield rest

    def _windows(self, order: list[int]) -> Iterator[list[int]]:
        files: list[int] = []
        size = 0
        for index in order:
            if files and size + self.counts[index] * self.dtype.itemsize > self.window:
                yield files
                files, size = [], 0
            files.append(index)
            size += self.counts[index] * self.dtype.itemsize
        yield files

    def _read(self, index: int) -> np.ndarray:
        return np.fromfile(_file(self.folder, index), self.dtype) if self.counts[index] else np.zeros(0, self.dtype)

    def _to_tensors(self, records: np.ndarray) -> TableTensors:
        numbers, codes, targets = (np.ascontiguousarray(records[name]) for name in FIELDS[:3])
        weight = torch.from_numpy(records["weight"] / np.float32(self.mean_weight))
        categories = torch.from_numpy(codes.astype(np.int64))
        rows = TableTensors(torch.from_numpy(numbers), categories, torch.from_numpy(targets), weight)
        return rows.to(self.device)


def _record_dtype(rows: TableTensors, codes: np.dtype) -> np.dtype:
    """All fields of a row side by side, so that a row is one read."""
    assert rows.targets is not None
    targets = rows.targets.numpy()
    return np.dtype(
        [
            ("numbers", np.float32, (rows.numbers.shape[1],)),
            ("categories", codes, (rows.categories.shape[1],)),
            ("targets", targets.dtype, targets.shape[1:]),
            ("weight", np.float32),
        ]
    )


def _to_records(rows: TableTensors, dtype: np.dtype) -> np.ndarray:
    records = np.empty(len(rows), dtype)
    for name, tensor in zip(FIELDS, rows.tensors(), strict=True):
        assert tensor is not None
        records[name] = tensor.numpy()
    return records


def _file(folder: Path, index: int) -> Path:
    return folder / f"rows-{index}"


# --- two passes over a chunked table ----------------------------------------------------------------------------------


class WeightedChunk(NamedTuple):
    """The rows of a chunk with positive sample weight."""

    X: pa.Table
    y: np.ndarray
    weight: np.ndarray
    keys: np.ndarray
    """(N,) uniform in [0, 1), the same in each pass: rows below the validation fraction are validation rows."""

    def filter(self, mask: np.ndarray) -> "WeightedChunk":
        return WeightedChunk(self.X.filter(pa.array(mask)), self.y[mask], self.weight[mask], self.keys[mask])


@dataclass(frozen=True)
class TwoPassLoader:
    """Reads a table that does not fit in memory twice: to fit the preprocessing, then to store the rows.

    `validate` takes features, target and weights of a chunk and returns them checked.
    """

    chunks: ChunkedTable
    roles: TargetColumns
    validate: Callable[[Any, Any, Any], tuple[Any, np.ndarray, np.ndarray]]
    validation_fraction: float

    def rows(self, seed: int) -> Iterator[WeightedChunk]:
        """All rows with positive weight, in chunks."""
        rng = np.random.default_rng(seed)
        for parts in self.chunks.split(self.roles):
            X, y, weight = self.validate(*parts)
            chunk = WeightedChunk(X, y, weight, rng.random(len(y)))
            chunk = chunk if weight.all() else chunk.filter(weight > 0)
            if len(chunk.y):
                yield chunk

    def collect_stats(self, reservoir: Reservoir, stats: TargetStats, *, seed: int) -> int:
        """First pass: statistics of columns and targets. Returns the number of rows."""
        rows = 0
        for chunk in self.rows(seed):
            is_train = chunk.keys >= self.validation_fraction
            rows += len(is_train)
            stats.update(chunk.y, is_train)
            if is_train.any():
                reservoir.add(to_frame(chunk.filter(is_train).X))
        return rows

    def store(
        self,
        to_tensors: Callable[[Any, np.ndarray, np.ndarray], TableTensors | None],
        store: RowStore,
        *,
        rows: int,
        seed: int,
    ) -> TableTensors | None:
        """Second pass: put training rows into a store. Returns the validation rows."""
        fraction = min(self.validation_fraction, MAX_VALIDATION_ROWS / rows)
        validation: list[TableTensors] = []
        for chunk in self.rows(seed):
            tensors = to_tensors(chunk.X, chunk.y, chunk.weight)
            if tensors is not None:
                mask = torch.from_numpy(chunk.keys < fraction)
                store.add(tensors.take(~mask))
                validation += [tensors.take(mask)] if mask.any() else []
        return concat_rows(validation) if validation else None
