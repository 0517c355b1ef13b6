"""A table too large to be held passes by twice: once to be learned about, once to be written down for a model."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch

from softlook.tabular.encoding.reservoir import Reservoir
from softlook.tabular.encoding.rows import Rows, together
from softlook.tabular.encoding.tallying import Tally
from softlook.tabular.learning.stored_rows import Shelf
from softlook.tabular.sources.frames import read_frame
from softlook.tabular.sources.pieces import Pieces, Roles

HELD = 100_000
"""Rows that are held out at most: more would say no more, and take long."""


class Piece(NamedTuple):
    """Rows that weigh something."""

    X: pa.Table
    y: np.ndarray
    weight: np.ndarray
    keys: np.ndarray
    """(N,) from 0 to 1 by chance, the same whenever the table passes by: those below a share are held out."""


@dataclass(frozen=True)
class TwoPasses:
    """A table in pieces, and how its rows are parted.

    `checked` takes what is read, wanted and weighed of a piece, and gives it back after it was seen to be right.
    """

    pieces: Pieces
    roles: Roles
    checked: Callable[[Any, Any, Any], tuple[Any, np.ndarray, np.ndarray]]
    share: float
    """Of the rows that are held out."""

    def rows(self, seed: int) -> Iterator[Piece]:
        """All rows that weigh something."""
        random = np.random.default_rng(seed)
        for parts in self.pieces.apart(self.roles):
            X, y, weight = self.checked(*parts)
            piece = Piece(X, y, weight, random.random(len(y)))
            found = piece if weight.all() else _some(piece, weight > 0)
            if len(found.y):
                yield found

    def survey(self, reservoir: Reservoir, tally: Tally, *, seed: int) -> int:
        """Learn what columns and targets are like; gives how many rows there are."""
        rows = 0
        for piece in self.rows(seed):
            learned = piece.keys >= self.share
            rows += len(learned)
            tally.add(piece.y, learned)
            if learned.any():
                reservoir.add(read_frame(_some(piece, learned).X))
        return rows

    def shelve(
        self, read: Callable[[Any, np.ndarray, np.ndarray], Rows | None], shelf: Shelf, *, rows: int, seed: int
    ) -> Rows | None:
        """Put what is learned from on a shelf; gives what is held out."""
        share = min(self.share, HELD / rows)
        held: list[Rows] = []
        for piece in self.rows(seed):
            found = read(piece.X, piece.y, piece.weight)
            if found is not None:
                kept = torch.from_numpy(piece.keys < share)
                shelf.add(found.take(~kept))
                held += [found.take(kept)] if kept.any() else []
        return together(held) if held else None


def _some(piece: Piece, which: np.ndarray) -> Piece:
    return Piece(piece.X.filter(pa.array(which)), piece.y[which], piece.weight[which], piece.keys[which])
