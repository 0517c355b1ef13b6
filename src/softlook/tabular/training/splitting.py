"""Validation splits: of a table in memory, and of a chunked one in two passes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch

from softlook.tabular.io.chunked import ChunkedTable, TargetColumns
from softlook.tabular.io.frames import to_frame
from softlook.tabular.preprocessing.reservoir import Reservoir
from softlook.tabular.preprocessing.rows import TableTensors, concat_rows
from softlook.tabular.preprocessing.target import TargetStats
from softlook.tabular.training.row_store import RowStore

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
