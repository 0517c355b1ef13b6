"""A map of any size, pooled to at most R x R cells."""

import torch
from torch import Tensor

from softlook.base.shapes import Tile
from softlook.ops.question import Question


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

    def take(self, weights: Tensor, tile: Tile) -> None:
        """Add what a strip holds. (b, h, t, s)"""
        for cell in range(len(self.row_edges) - 1):
            start = max(self.row_edges[cell], tile.rows.start) - tile.rows.start
            stop = min(self.row_edges[cell + 1], tile.rows.stop) - tile.rows.start
            if start < stop and len(tile.columns):
                self._take_cell(weights[:, :, start:stop], cell, tile)

    def maps(self) -> dict[str, Tensor]:
        """The pooled maps that were asked for. (B, H, R, R)"""
        found = {}
        if self.sums is not None:
            rows, columns = (torch.tensor(e, device=self.sums.device).diff() for e in (self.row_edges, self.column_edges))
            found["heat_mean"] = self.sums / (rows[:, None] * columns)
        if self.peaks is not None:
            found["heat_max"] = self.peaks
        return found

    def _take_cell(self, weights: Tensor, cell: int, tile: Tile) -> None:
        columns = self.column_bin[tile.columns.start : tile.columns.stop]
        for held, pool, reduce in ((self.sums, Tensor.sum, "sum"), (self.peaks, Tensor.amax, "amax")):
            if held is not None:
                row = held[tile.batch.start : tile.batch.stop, tile.heads.start : tile.heads.stop, cell]
                pooled = pool(weights, 2)
                row.scatter_reduce_(-1, columns.expand_as(pooled), pooled, reduce)


def edges(length: int, bins: int) -> list[int]:
    """Where each of at most `bins` bins begins, and where the last one ends."""
    count = max(1, min(length, bins))
    return [bin * length // count for bin in range(count + 1)]
