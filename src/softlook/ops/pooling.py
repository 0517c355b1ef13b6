"""A map of any size, pooled to at most R x R cells."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import pad

from softlook.base.shapes import Tile
from softlook.ops.question import Question

Pool = Callable[[Tensor, int], Tensor]
"""Sum or largest over an axis."""


class Heat:
    """Gathers the mean and the largest weight of each cell while the map goes by in strips.

    Cell (a, b) holds queries from a*T/R up to (a+1)*T/R and keys likewise, rounded down.
    """

    def __init__(self, question: Question, bins: int, ask: frozenset[str]) -> None:
        B, H, T, S = question.sizes
        device = question.query.device
        self.row_edges, self.column_edges = edges(T, bins), edges(S, bins)
        self.column_bin = torch.bucketize(
            torch.arange(S, device=device), torch.tensor(self.column_edges[1:-1], device=device), right=True
        )
        shape = (B, H, len(self.row_edges) - 1, len(self.column_edges) - 1)
        empty = question.query.new_zeros(shape, dtype=question.numbers)
        self.sums = empty if "heat_mean" in ask else None
        self.peaks = empty.clone() if "heat_max" in ask else None

    def cells(self, weights: Tensor, tile: Tile) -> dict[str, Tensor]:
        """What a strip (b, h, t, s) adds to each pooled map that was asked for: (b, h, rows of cells, R)."""
        if not len(tile.columns):
            return {}
        return {name: self._columns(self._rows(weights, tile, pool), tile, pool) for name, _, pool in self._held()}

    def take(self, parts: dict[str, Tensor], tile: Tile) -> None:
        """Join the cells of a strip to those of the strips before it."""
        first = bisect_right(self.row_edges, tile.rows.start) - 1
        for name, held, pool in self._held():
            if name in parts:
                here = held[tile.batch.start : tile.batch.stop, tile.heads.start : tile.heads.stop]
                here = here[:, :, first : first + parts[name].shape[2]]
                if pool is Tensor.sum:
                    here.add_(parts[name])
                else:
                    here.copy_(torch.maximum(here.clone(), parts[name]))

    def _held(self) -> list[tuple[str, Tensor, Pool]]:
        held = [("heat_mean", self.sums, Tensor.sum), ("heat_max", self.peaks, Tensor.amax)]
        return [(name, maps, pool) for name, maps, pool in held if maps is not None]

    def maps(self) -> dict[str, Tensor]:
        """The pooled maps that were asked for. (B, H, R, R)"""
        found = {}
        if self.sums is not None:
            rows, columns = (
                torch.tensor(e, device=self.sums.device).diff() for e in (self.row_edges, self.column_edges)
            )
            found["heat_mean"] = self.sums / (rows[:, None] * columns)
        if self.peaks is not None:
            found["heat_max"] = self.peaks
        return found

    def _rows(self, weights: Tensor, tile: Tile, pool: Pool) -> Tensor:
        """Rows of the strip pooled to rows of cells. (b, h, cells, s)"""
        side = _even_side(self.row_edges, tile.rows)
        if side:
            return pool(weights.unflatten(2, (-1, side)), 3)
        first = bisect_right(self.row_edges, tile.rows.start) - 1
        last = bisect_left(self.row_edges, tile.rows.stop)
        edges = [
            min(max(e, tile.rows.start), tile.rows.stop) - tile.rows.start for e in self.row_edges[first : last + 1]
        ]
        return torch.stack([pool(weights[:, :, a:b], 2) for a, b in pairwise(edges)], 2)

    def _columns(self, cells: Tensor, tile: Tile, pool: Pool) -> Tensor:
        """Columns pooled to columns of cells. (b, h, cells, R)"""
        count = len(self.column_edges) - 1
        side = _even_side(self.column_edges, tile.columns)
        if side:
            before, after = tile.columns.start // side, count - tile.columns.stop // side
            return pad(pool(cells.unflatten(-1, (-1, side)), -1), (before, after))
        pooled = cells.new_zeros((*cells.shape[:-1], count))
        columns = self.column_bin[tile.columns.start : tile.columns.stop].expand_as(cells)
        return pooled.scatter_reduce_(-1, columns, cells, "sum" if pool is Tensor.sum else "amax")


def _even_side(edges: list[int], part: range) -> int:
    """The size of a cell where all are alike and the part begins and ends at their edges; else 0."""
    side, uneven = divmod(edges[-1], len(edges) - 1)
    return 0 if uneven or part.start % side or part.stop % side else side


def edges(length: int, bins: int) -> list[int]:
    """Where each of at most `bins` bins begins, and where the last one ends."""
    count = max(1, min(length, bins))
    return [bin * length // count for bin in range(count + 1)]
