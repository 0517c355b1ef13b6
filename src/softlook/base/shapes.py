"""THE legend: one letter, one meaning, in every file.

    B  batch            T  queries          S  keys
    C  model width      H  query heads      G  key/value heads (H = G * R)
    R  heads per group  D  head width       E  value width
    M  hidden width     V  vocabulary       L  layers
    N  rows of a table  J  columns          K  classes      P  patches or relative positions

A query and a key are lined up so that the *last* query sits at the *last* key:
query i stands at position i + (S - T). With T = S that is simply i.

A small letter is a part of the large one: `t` rows of the T queries, `s` of the S keys.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Span:
    """A range whose ends are not known yet: while a model is exported, sizes are symbols, which no range can hold."""

    start: int
    stop: int


def span(start: int, stop: int) -> range:
    """From `start` up to, not including, `stop`."""
    return Span(start, stop) if torch.compiler.is_exporting() else range(start, stop)  # pyright: ignore[reportReturnType]


@dataclass(frozen=True)
class Tile:
    """A rectangle of the B x H x T x S map: which part of it is being worked on."""

    batch: range
    heads: range
    rows: range
    columns: range
    queries: int
    """T, of the whole map."""
    keys: int
    """S, of the whole map."""
    device: torch.device

    @staticmethod
    def whole(sizes: tuple[int, int, int, int], device: torch.device) -> "Tile":
        """The tile that is the whole map."""
        B, H, T, S = sizes
        return Tile(span(0, B), span(0, H), span(0, T), span(0, S), T, S, device)

    @property
    def shift(self) -> int:
        """What turns a query's number into its position among the keys."""
        return self.keys - self.queries

    def indices(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Batch, head, query and key numbers, shaped to broadcast to the tile."""
        ranges = (self.batch, self.heads, self.rows, self.columns)
        numbers = [torch.arange(r.start, r.stop, device=self.device) for r in ranges]
        b, h, i, j = (n.view([-1 if axis == own else 1 for axis in range(4)]) for own, n in enumerate(numbers))
        return b, h, i, j

    def distances(self) -> Tensor:
        """How far each key lies behind its query: positive looks back, negative ahead. (t, s)"""
        rows = torch.arange(self.rows.start, self.rows.stop, device=self.device) + self.shift
        return rows[:, None] - torch.arange(self.columns.start, self.columns.stop, device=self.device)
