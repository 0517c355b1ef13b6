"""Pooled attention maps: mean and max per cell."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import pad

from softlook.base.shapes import Tile
from softlook.ops.arguments import AttentionArgs

Pool = Callable[[Tensor, int], Tensor]
"""Tensor.sum or Tensor.amax over a dimension."""


class PooledMap:
    """Accumulates the mean and the largest weight of each cell over row tiles.

    Cell (a, b) holds queries from a*T/R up to (a+1)*T/R and keys likewise, rounded down.
    """

    def __init__(self, args: AttentionArgs, bins: int, stats: frozenset[str]) -> None:
        B, H, T, S = args.sizes
        device = args.query.device
        self.row_edges, self.column_edges = bin_edges(T, bins), bin_edges(S, bins)
        self.column_bin = torch.bucketize(
            torch.arange(S, device=device), torch.tensor(self.column_edges[1:-1], device=device), right=True
        )
        shape = (B, H, len(self.row_edges) - 1, len(self.column_edges) - 1)
        zeros = args.query.new_zeros(shape, dtype=args.compute_dtype)
        self.sums = zeros if "pooled_mean" in stats else None
        self.maxima = zeros.clone() if "pooled_max" in stats else None

    def cells(self, weights: Tensor, tile: Tile) -> dict[str, Tensor]:
        """Pool a row tile (b, h, t, s) for each requested map: (b, h, rows of cells, R)."""
        if not len(tile.columns):
            return {}
        return {name: self._columns(self._rows(weights, tile, pool), tile, pool) for name, _, pool in self._requested()}

    def add(self, parts: dict[str, Tensor], tile: Tile) -> None:
        """Add the cells of a row tile to the pooled maps."""
        first = bisect_right(self.row_edges, tile.rows.start) - 1
        for name, pooled, pool in self._requested():
            if name in parts:
                target = pooled[tile.batch.start : tile.batch.stop, tile.heads.start : tile.heads.stop]
                target = target[:, :, first : first + parts[name].shape[2]]
                if pool is Tensor.sum:
                    target.add_(parts[name])
                else:
                    target.copy_(torch.maximum(target.clone(), parts[name]))

    def _requested(self) -> list[tuple[str, Tensor, Pool]]:
        pooled = [("pooled_mean", self.sums, Tensor.sum), ("pooled_max", self.maxima, Tensor.amax)]
        return [(name, cells, pool) for name, cells, pool in pooled if cells is not None]

    def maps(self) -> dict[str, Tensor]:
        """Return the requested pooled maps. (B, H, R, R)"""
        maps = {}
        if self.sums is not None:
            rows, columns = (
                torch.tensor(e, device=self.sums.device).diff() for e in (self.row_edges, self.column_edges)
            )
            maps["pooled_mean"] = self.sums / (rows[:, None] * columns)
        if self.maxima is not None:
            maps["pooled_max"] = self.maxima
        return maps

    def _rows(self, weights: Tensor, tile: Tile, pool: Pool) -> Tensor:
        """Pool rows of the tile to rows of cells. (b, h, cells, s)"""
        size = _even_cell_size(self.row_edges, tile.rows)
        if size:
            return pool(weights.unflatten(2, (-1, size)), 3)
        first = bisect_right(self.row_edges, tile.rows.start) - 1
        last = bisect_left(self.row_edges, tile.rows.stop)
        edges = [
            min(max(e, tile.rows.start), tile.rows.stop) - tile.rows.start for e in self.row_edges[first : last + 1]
        ]
        return torch.stack([pool(weights[:, :, a:b], 2) for a, b in pairwise(edges)], 2)

    def _columns(self, cells: Tensor, tile: Tile, pool: Pool) -> Tensor:
        """Pool columns to columns of cells. (b, h, cells, R)"""
        count = len(self.column_edges) - 1
        size = _even_cell_size(self.column_edges, tile.columns)
        if size:
            before, after = tile.columns.start // size, count - tile.columns.stop // size
            return pad(pool(cells.unflatten(-1, (-1, size)), -1), (before, after))
        pooled = cells.new_zeros((*cells.shape[:-1], count))
        columns = self.column_bin[tile.columns.start : tile.columns.stop].expand_as(cells)
        return pooled.scatter_reduce_(-1, columns, cells, "sum" if pool is Tensor.sum else "amax")


def _even_cell_size(edges: list[int], part: range) -> int:
    """The cell size if all cells are equal and the part begins and ends at their edges; else 0."""
    size, uneven = divmod(edges[-1], len(edges) - 1)
    return 0 if uneven or part.start % size or part.stop % size else size


def bin_edges(length: int, bins: int) -> list[int]:
    """Return the edges of at most `bins` bins over `length` entries."""
    count = max(1, min(length, bins))
    return [bin * length // count for bin in range(count + 1)]
