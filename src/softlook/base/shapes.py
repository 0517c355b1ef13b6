"""Shape letters of the library, and tiles of an attention map.

    B  batch              T  queries          S  keys
    C  model dimension    H  query heads      G  key/value heads (H = G * R)
    R  group size         D  head dimension   E  value dimension
    M  FFN dimension      V  vocabulary       L  layers
    N  table rows         J  columns          K  classes      P  patches or relative positions

The *last* query is aligned with the *last* key: query i is at position i + (S - T), which is i where T = S.
A lower-case letter is a part of the upper-case one: `t` of the T queries, `s` of the S keys.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class SymbolicRange:
    """A range with symbolic bounds: `torch.export` sizes are symbols, which `range` cannot hold."""

    start: int
    stop: int


def make_range(start: int, stop: int) -> range:
    """Return the half-open range [start, stop), symbolic while exporting."""
    if torch.compiler.is_exporting():
        return SymbolicRange(start, stop)  # pyright: ignore[reportReturnType]
    return range(start, stop)


@dataclass
class Tile:
    """A rectangular part of the (B, H, T, S) attention map. Treat it as immutable."""

    batch: range
    heads: range
    rows: range
    columns: range
    queries: int
    """T of the whole map."""
    keys: int
    """S of the whole map."""
    device: torch.device

    @staticmethod
    def whole(sizes: tuple[int, int, int, int], device: torch.device) -> "Tile":
        """Return the tile that covers the whole map."""
        B, H, T, S = sizes
        if torch.compiler.is_exporting():
            return Tile(make_range(0, B), make_range(0, H), make_range(0, T), make_range(0, S), T, S, device)
        return Tile(range(B), range(H), range(T), range(S), T, S, device)

    @property
    def shift(self) -> int:
        """S - T, the offset from a query's index to its position among the keys."""
        return self.keys - self.queries

    def indices(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return batch, head, query and key indices, shaped to broadcast to the tile."""
        return (
            torch.arange(self.batch.start, self.batch.stop, device=self.device).view(-1, 1, 1, 1),
            torch.arange(self.heads.start, self.heads.stop, device=self.device).view(1, -1, 1, 1),
            *self.query_key_indices(),
        )

    def query_key_indices(self) -> tuple[Tensor, Tensor]:
        """Return query indices (1, 1, t, 1) and key indices (1, 1, 1, s)."""
        rows = torch.arange(self.rows.start, self.rows.stop, device=self.device)
        columns = torch.arange(self.columns.start, self.columns.stop, device=self.device)
        return rows.view(1, 1, -1, 1), columns.view(1, 1, 1, -1)

    def distances(self) -> Tensor:
        """Return query position minus key position: positive for past keys, negative for future ones. (t, s)"""
        rows = torch.arange(self.rows.start, self.rows.stop, device=self.device) + self.shift
        return rows[:, None] - torch.arange(self.columns.start, self.columns.stop, device=self.device)


@dataclass(frozen=True)
class MapIndices:
    """Any cells of the (B, H, T, S) attention map: indices that broadcast to the shape of the part."""

    batch: Tensor
    heads: Tensor
    rows: Tensor
    """Query indices."""
    columns: Tensor
    """Key indices."""
    queries: int
    """T of the whole map."""
    keys: int
    """S of the whole map."""

    @property
    def shift(self) -> int:
        """S - T, the offset from a query's index to its position among the keys."""
        return self.keys - self.queries

    @property
    def distances(self) -> Tensor:
        """Query position minus key position: positive for past keys, negative for future ones."""
        return self.rows + self.shift - self.columns
