"""Mask types: window, prefix, padding, documents, graph, function."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from softlook.base.errors import MaskError
from softlook.base.shapes import Tile
from softlook.base.tensors import can_read, is_traced
from softlook.ops.masks.base import FIRST_KEY, NO_ANCHOR, OWN_KEY, Mask, Sizes
from softlook.ops.masks.cache import cached

MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""FlexAttention's signature: (batch, head, q_idx, kv_idx) -> bool."""


MAX_CACHED_TILE = 1 << 16
"""Larger tiles of a window are not cached."""


@dataclass(frozen=True)
class WindowMask(Mask):
    """Keys from `left` positions before the query to `right` positions after it; None = unlimited."""

    has_tensors: ClassVar[bool] = False  # pyright: ignore[reportIncompatibleVariableOverride]

    left: int | None
    right: int | None

    def mask_mod(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor, shift: int) -> Tensor:
        position = i + shift
        if self.left is None:
            return j <= position + self.right if self.right is not None else j >= 0 * position
        return (j >= position - self.left) & (True if self.right is None else j <= position + self.right)

    @property
    def shared_key(self) -> Hashable:
        return self.left, self.right

    def tile(self, tile: Tile) -> Tensor:
        def build() -> Tensor:
            rows, columns = tile.query_key_indices()
            return self.mask_mod(rows, rows, rows, columns, tile.shift)

        if torch.compiler.is_compiling() or len(tile.rows) * len(tile.columns) > MAX_CACHED_TILE:
            return build()
        return cached(self, "tile", (tile.rows, tile.columns, tile.shift, tile.device), build)

    def visible_range(self, tile: Tile) -> range:
        return self._columns(tile, first_row=tile.rows.start, last_row=tile.rows.stop - 1)

    def full_range(self, tile: Tile) -> range:
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
            return NO_ANCHOR  # the first queries are before the first key
        return OWN_KEY | FIRST_KEY if self.left is None else OWN_KEY

    def __and__(self, other: Mask | Tensor) -> Mask:
        if isinstance(other, WindowMask):
            return WindowMask(_min_bound(self.left, other.left), _min_bound(self.right, other.right))
        return super().__and__(other)

    def __str__(self) -> str:
        return "causal()" if (self.left, self.right) == (None, 0) else f"window({self.left}, {self.right})"


CAUSAL = WindowMask(None, 0)


@dataclass(frozen=True, eq=False)
class PrefixMask(Mask):
    """The first `length` keys: one number, or one per sequence."""

    length: int | Tensor

    def mask_mod(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor, shift: int) -> Tensor:
        return j < (self.length if isinstance(self.length, int) else self.length[b])

    def visible_range(self, tile: Tile) -> range:
        return tile.columns if isinstance(self.length, Tensor) else self._columns(tile, self.length)

    def full_range(self, tile: Tile) -> range:
        return tile.columns[:0] if isinstance(self.length, Tensor) else self._columns(tile, self.length)

    def anchors(self, queries: int, keys: int) -> frozenset[str]:
        return FIRST_KEY if isinstance(self.length, int) and self.length > 0 and keys > 0 else NO_ANCHOR

    def validate(self, sizes: Sizes) -> None:
        if isinstance(self.length, Tensor):
            check_per_sequence("prefix", self.length, sizes)

    @staticmethod
    def _columns(tile: Tile, length: int) -> range:
        stop = min(tile.columns.stop, length)
        return range(tile.columns.start, max(tile.columns.start, stop))

    def __str__(self) -> str:
        return f"prefix({self.length if isinstance(self.length, int) else 'lengths'})"


@dataclass(frozen=True, eq=False)
class PaddingMask(Mask):
    """The real keys of each sequence: the first `lengths[b]`, or the last ones with padding on the left."""

    lengths: Tensor
    keys: int | None
    """S where padding is on the left, None where it is on the right."""

    def mask_mod(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor, shift: int) -> Tensor:
        lengths = self.lengths[b]
        return j < lengths if self.keys is None else j >= self.keys - lengths

    def tile(self, tile: Tile) -> Tensor:
        lengths = self.lengths.view(-1, 1, 1, 1)
        if tile.batch.stop - tile.batch.start != self.lengths.shape[0]:
            lengths = lengths[tile.batch.start : tile.batch.stop]
        columns = torch.arange(tile.columns.start, tile.columns.stop, device=tile.device)
        return columns < lengths if self.keys is None else columns >= self.keys - lengths

    def anchors(self, queries: int, keys: int) -> frozenset[str]:
        if self.keys is not None or not keys or not can_read(self.lengths):
            return NO_ANCHOR
        return FIRST_KEY if not self.lengths.numel() or int(self.lengths.min()) > 0 else NO_ANCHOR

    def validate(self, sizes: Sizes) -> None:
        check_per_sequence("padding", self.lengths, sizes)
        if self.keys not in (None, sizes[3]):
            raise MaskError(f"this padding mask is for {self.keys} keys, got {sizes[3]} keys")

    def __str__(self) -> str:
        return "padding(lengths)" if self.keys is None else f"padding(lengths, side='left', length={self.keys})"


@dataclass(frozen=True, eq=False)
class DocumentMask(Mask):
    """Block-diagonal mask of several documents packed into one row."""

    keys: Tensor
    """(B, S): the document id of each key."""
    queries: Tensor | None
    """(B, T), or None where the queries are the last keys."""

    def mask_mod(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor, shift: int) -> Tensor:
        keys, queries, index = self.keys, self.queries, i
        if queries is None:
            queries, index = keys, i + shift
        zero = torch.zeros_like(b)
        own = queries[b if queries.shape[0] > 1 else zero, index]
        return own == keys[b if keys.shape[0] > 1 else zero, j]

    def anchors(self, queries: int, keys: int) -> frozenset[str]:
        return OWN_KEY if self.queries is None and 0 < queries <= keys else NO_ANCHOR

    def validate(self, sizes: Sizes) -> None:
        B, _, T, S = sizes
        _check_ids("keys", self.keys, B, S)
        if self.queries is not None:
            _check_ids("queries", self.queries, B, T)
        elif T > S:
            raise MaskError(f"{T} queries cannot be the last of {S} keys: pass documents(keys, queries)")

    def __str__(self) -> str:
        return "documents(ids)"


@dataclass(frozen=True, eq=False)
class GraphMask(Mask):
    """The edges of a graph, in O(edges) memory."""

    edges: Tensor
    """(2, edges), sorted by query node."""
    nodes: tuple[int, int]
    """The smallest numbers of query and key nodes that hold all edges."""

    def mask_mod(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor, shift: int) -> Tensor:
        """Unrolled binary search among the sorted edges, for tracers, which have no `searchsorted`."""
        width, edges = self.nodes[1], self.edges.shape[1]
        if not edges:
            return (i + j) < 0
        codes, code = self.edges[0] * width + self.edges[1], i.long() * width + j
        index = torch.zeros_like(code)
        for power in reversed(range(edges.bit_length())):
            ahead = index + (1 << power)
            less = codes[ahead.clamp(max=edges) - 1] < code
            index = torch.where((ahead <= edges) & less, ahead, index)
        return (codes[index.clamp(max=edges - 1)] == code) & (j < width)

    def tile(self, tile: Tile) -> Tensor:
        if is_traced(self.edges):
            return super().tile(tile)
        bounds = torch.tensor([tile.rows.start, tile.rows.stop], device=self.edges.device)
        first, last = torch.searchsorted(self.edges[0].contiguous(), bounds).tolist()
        rows, columns = self.edges[:, first:last]
        inside = (columns >= tile.columns.start) & (columns < tile.columns.stop)
        visible = torch.zeros(1, 1, len(tile.rows), len(tile.columns), dtype=torch.bool, device=tile.device)
        visible[0, 0, rows[inside] - tile.rows.start, columns[inside] - tile.columns.start] = True
        return visible

    @property
    def can_compile(self) -> bool:
        """No: a kernel inlines the search, and its expression grows by a factor of four with each step."""
        return False

    def validate(self, sizes: Sizes) -> None:
        _, _, T, S = sizes
        if self.nodes[0] > T or self.nodes[1] > S:
            largest = tuple(count - 1 for count in self.nodes)
            raise MaskError(f"the largest nodes of this graph are {largest}, but there are {T} queries and {S} keys")

    def __str__(self) -> str:
        return f"graph({self.edges.shape[1]} edges)"


@dataclass(frozen=True, eq=False)
class FunctionMask(Mask):
    """A function with FlexAttention's `mask_mod` signature."""

    function: MaskMod

    def mask_mod(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor, shift: int) -> Tensor:
        visible = self.function(b, h, i + shift, j)
        if visible.dtype != torch.bool:
            raise MaskError(f"the function of a mask must return a boolean tensor, got {visible.dtype}")
        return visible

    def tile(self, tile: Tile) -> Tensor:
        visible = super().tile(tile)
        return visible if visible.ndim == 4 else visible.expand(1, 1, 1, 1)

    def __str__(self) -> str:
        return f"from_function({getattr(self.function, '__name__', 'fn')})"


def check_per_sequence(name: str, lengths: Tensor, sizes: Sizes) -> None:
    """Require one integer for each sequence of the batch."""
    if lengths.shape != (sizes[0],):
        raise MaskError(f"{name} expects one length per sequence, ({sizes[0]},), got {tuple(lengths.shape)}")


def _check_ids(name: str, ids: Tensor, batch: int, length: int) -> None:
    if ids.shape not in ((1, length), (batch, length)):
        raise MaskError(
            f"documents expects one id for each of the {length} {name}, shaped ({batch}, {length}) or ({length},), "
            f"got {tuple(ids.shape)}"
        )


def _min_bound(one: int | None, other: int | None) -> int | None:
    return min((bound for bound in (one, other) if bound is not None), default=None)
