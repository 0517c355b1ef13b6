"""The kinds of mask that are known by name."""

from dataclasses import dataclass

import torch
from torch import Tensor

from softlook.base.errors import MaskError
from softlook.base.shapes import Tile
from softlook.base.tracing import can_read, is_traced
from softlook.ops.masks.algebra import FIRST, ITSELF, NONE, Mask, Sizes


@dataclass(frozen=True)
class Band(Mask):
    """Keys from `left` positions behind the query to `right` positions ahead; None = without end."""

    left: int | None
    right: int | None

    def at(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor, shift: int) -> Tensor:
        place = i + shift
        if self.left is None:
            return j <= place + self.right if self.right is not None else j >= 0 * place
        return (j >= place - self.left) & (True if self.right is None else j <= place + self.right)

    def reach(self, tile: Tile) -> range:
        return self._columns(tile, first_row=tile.rows.start, last_row=tile.rows.stop - 1)

    def clear(self, tile: Tile) -> range:
        return self._columns(tile, first_row=tile.rows.stop - 1, last_row=tile.rows.start)

    def _columns(self, tile: Tile, first_row: int, last_row: int) -> range:
        start, stop = tile.columns.start, tile.columns.stop
        if self.left is not None:
            start = max(start, first_row + tile.shift - self.left)
        if self.right is not None:
            stop = min(stop, last_row + tile.shift + self.right + 1)
        return range(start, max(start, stop))

    def anchors(self, queries: int, keys: int) -> frozenset[str]:
        if not 0 < queries <= keys:
            return NONE  # the first queries stand before the first key
        return ITSELF | FIRST if self.left is None else ITSELF

    def __and__(self, other: Mask | Tensor) -> Mask:
        if isinstance(other, Band):
            return Band(_nearer(self.left, other.left), _nearer(self.right, other.right))
        return super().__and__(other)

    def __str__(self) -> str:
        return "causal()" if (self.left, self.right) == (None, 0) else f"window({self.left}, {self.right})"


@dataclass(frozen=True, eq=False)
class Prefix(Mask):
    """The first `length` keys: one number, or one per sequence."""

    length: int | Tensor

    def at(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor, shift: int) -> Tensor:
        return j < (self.length if isinstance(self.length, int) else self.length[b])

    def reach(self, tile: Tile) -> range:
        return tile.columns if isinstance(self.length, Tensor) else self._known(tile, self.length)

    def clear(self, tile: Tile) -> range:
        return tile.columns[:0] if isinstance(self.length, Tensor) else self._known(tile, self.length)

    def anchors(self, queries: int, keys: int) -> frozenset[str]:
        return FIRST if isinstance(self.length, int) and self.length > 0 and keys > 0 else NONE

    def check(self, sizes: Sizes) -> None:
        if isinstance(self.length, Tensor):
            check_per_sequence("prefix", self.length, sizes)

    @staticmethod
    def _known(tile: Tile, length: int) -> range:
        stop = min(tile.columns.stop, length)
        return range(tile.columns.start, max(tile.columns.start, stop))

    def __str__(self) -> str:
        return f"prefix({self.length if isinstance(self.length, int) else 'lengths'})"


@dataclass(frozen=True, eq=False)
class Padding(Mask):
    """The keys that are really there: the first `lengths[b]`, or the last where padding is on the left."""

    lengths: Tensor
    keys: int | None
    """S where padding is on the left, None where it is on the right."""

    def at(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor, shift: int) -> Tensor:
        lengths = self.lengths[b]
        return j < lengths if self.keys is None else j >= self.keys - lengths

    def anchors(self, queries: int, keys: int) -> frozenset[str]:
        if self.keys is not None or not keys or not can_read(self.lengths):
            return NONE
        return FIRST if bool((self.lengths > 0).all()) else NONE

    def check(self, sizes: Sizes) -> None:
        check_per_sequence("padding", self.lengths, sizes)
        if self.keys not in (None, sizes[3]):
            raise MaskError(f"this padding is for {self.keys} keys, but {sizes[3]} keys came")

    def __str__(self) -> str:
        return "padding(lengths)" if self.keys is None else f"padding(lengths, left_of={self.keys})"


@dataclass(frozen=True, eq=False)
class Documents(Mask):
    """Several documents packed into one row: look only within your own."""

    keys: Tensor
    """(B, S): the document each key belongs to."""
    queries: Tensor | None
    """(B, T), or None when the queries are the last keys."""

    def at(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor, shift: int) -> Tensor:
        keys, queries, places = self.keys, self.queries, i
        if queries is None:
            queries, places = keys, i + shift
        zero = torch.zeros_like(b)
        own = queries[b if queries.shape[0] > 1 else zero, places]
        return own == keys[b if keys.shape[0] > 1 else zero, j]

    def anchors(self, queries: int, keys: int) -> frozenset[str]:
        return ITSELF if self.queries is None and 0 < queries <= keys else NONE

    def check(self, sizes: Sizes) -> None:
        B, _, T, S = sizes
        _check_ids("keys", self.keys, B, S)
        if self.queries is not None:
            _check_ids("queries", self.queries, B, T)
        elif T > S:
            raise MaskError(f"{T} queries cannot be the last of {S} keys: give documents(keys, queries) both")

    def __str__(self) -> str:
        return "documents(ids)"


@dataclass(frozen=True, eq=False)
class Graph(Mask):
    """Look along the edges of a graph."""

    edges: Tensor
    """(2, edges), sorted by the node that looks."""
    nodes: tuple[int, int]
    """The number of query nodes and of key nodes that the edges need."""

    def at(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor, shift: int) -> Tensor:
        """Binary search among the sorted edges, unrolled into gathers: a compiled kernel has no `searchsorted`."""
        width, edges = self.nodes[1], self.edges.shape[1]
        if not edges:
            return (i + j) < 0
        known, wanted = self.edges[0] * width + self.edges[1], i.long() * width + j
        place = torch.zeros_like(wanted)
        for power in reversed(range(edges.bit_length())):
            ahead = place + (1 << power)
            less = known[ahead.clamp(max=edges) - 1] < wanted
            place = torch.where((ahead <= edges) & less, ahead, place)
        return (known[place.clamp(max=edges - 1)] == wanted) & (j < width)

    def on(self, tile: Tile) -> Tensor:
        if is_traced(self.edges):
            return super().on(tile)
        ends = torch.tensor([tile.rows.start, tile.rows.stop], device=self.edges.device)
        first, last = torch.searchsorted(self.edges[0].contiguous(), ends).tolist()
        rows, columns = self.edges[:, first:last]
        inside = (columns >= tile.columns.start) & (columns < tile.columns.stop)
        seen = torch.zeros(1, 1, len(tile.rows), len(tile.columns), dtype=torch.bool, device=tile.device)
        seen[0, 0, rows[inside] - tile.rows.start, columns[inside] - tile.columns.start] = True
        return seen

    def check(self, sizes: Sizes) -> None:
        _, _, T, S = sizes
        if self.nodes[0] > T or self.nodes[1] > S:
            top = tuple(number - 1 for number in self.nodes)
            raise MaskError(f"an edge of this graph joins nodes {top}, but there are {T} queries and {S} keys")

    def __str__(self) -> str:
        return f"graph({self.edges.shape[1]} edges)"


def check_per_sequence(what: str, numbers: Tensor, sizes: Sizes) -> None:
    """One whole number for each sequence of the batch."""
    if numbers.shape != (sizes[0],):
        raise MaskError(f"{what} wants one length per sequence, ({sizes[0]},); {tuple(numbers.shape)} came")


def _check_ids(what: str, ids: Tensor, batch: int, length: int) -> None:
    if ids.shape not in ((1, length), (batch, length)):
        raise MaskError(
            f"documents wants one id for each of the {length} {what}, shaped ({batch}, {length}) or ({length},); "
            f"{tuple(ids.shape)} came"
        )


def _nearer(one: int | None, other: int | None) -> int | None:
    known = [limit for limit in (one, other) if limit is not None]
    return min(known, default=None)
