"""Keys that stand before the context and are no part of it: always in sight, nowhere in particular.

Queries line up with the last keys, so what comes first moves no distance and no causal mask.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from softlook.base.errors import MaskError
from softlook.base.shapes import Tile, span
from softlook.ops.bias import At, Bias, as_bias
from softlook.ops.masks import Mask
from softlook.ops.masks.algebra import FIRST, NONE, Sizes, as_mask
from softlook.ops.masks.kinds import Band

CAUSAL = Band(None, 0)


@dataclass(frozen=True, eq=False)
class MaskBeside(Mask):
    """A mask over the context, and `count` keys before it that every query sees."""

    mask: Mask
    count: int

    def at(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor, shift: int) -> Tensor:
        # Numbers of keys that are not the context's go in as its first: what the mask says of that is not used.
        return (j < self.count) | self.mask.at(b, h, i, (j - self.count).clamp(min=0), shift - self.count)

    def on(self, tile: Tile) -> Tensor:
        inner = inner_tile(tile, self.count)
        seen, width = self.mask.on(inner), size(inner.columns)
        always = seen.new_ones((*seen.shape[:3], size(tile.columns) - width))
        return torch.cat([always, seen.expand(-1, -1, -1, width)], -1)

    def reach(self, tile: Tile) -> range:
        own = range(tile.columns.start, min(max(self.count, tile.columns.start), tile.columns.stop))
        reached = self._outer(self.mask.reach(inner_tile(tile, self.count)))
        return own if not reached else range(own.start if own else reached.start, reached.stop)

    def clear(self, tile: Tile) -> range:
        own = range(tile.columns.start, min(max(self.count, tile.columns.start), tile.columns.stop))
        cleared = self._outer(self.mask.clear(inner_tile(tile, self.count)))
        if own and cleared and cleared.start == own.stop:
            return range(own.start, cleared.stop)
        return max(own, cleared, key=len)

    def anchors(self, queries: int, keys: int) -> frozenset[str]:
        itself = self.mask.anchors(queries, keys - self.count) - FIRST
        return itself | (FIRST if self.count else NONE)

    def check(self, sizes: Sizes) -> None:
        self.mask.check(inner_sizes(sizes, self.count))

    def _outer(self, columns: range) -> range:
        return range(columns.start + self.count, columns.stop + self.count)

    def __str__(self) -> str:
        return f"({self.mask} beside {self.count} keys)"


@dataclass(frozen=True, eq=False)
class BiasBeside(Bias):
    """A bias over the context, and `count` keys before it that it does not touch."""

    bias: Bias
    count: int

    def on(self, query: Tensor, key: Tensor, scale: float, tile: Tile) -> Tensor:
        inner = inner_tile(tile, self.count)
        untouched = size(tile.columns) - size(inner.columns)
        if not size(inner.columns):
            return query.new_zeros(1, 1, 1, untouched)
        numbers = self.bias.on(query, key[:, :, untouched:], scale, inner)
        return torch.nn.functional.pad(numbers, (untouched, 0))

    def entry(self, queries: int, keys: int) -> At | None:
        inner, count = self.bias.entry(queries, keys - self.count), self.count
        if inner is None:
            return None
        return lambda b, h, i, j: torch.where(j < count, 0.0, inner(b, h, i, (j - count).clamp(min=0)))

    def check(self, sizes: Sizes, width: int) -> None:
        self.bias.check(inner_sizes(sizes, self.count), width)

    def added_value(self, weights: Tensor, tile: Tile) -> Tensor | None:
        inner = inner_tile(tile, self.count)
        return self.bias.added_value(weights[..., size(tile.columns) - size(inner.columns) :], inner)

    @property
    def adds_value(self) -> bool:
        return self.bias.adds_value

    @property
    def may_hide(self) -> bool:
        return self.bias.may_hide

    @property
    def written_out(self) -> bool:
        return self.bias.written_out

    @property
    def uses_content(self) -> bool:
        return self.bias.uses_content

    @property
    def learned(self) -> bool:
        return self.bias.learned

    def __str__(self) -> str:
        return f"({self.bias} beside {self.count} keys)"


def mask_beside(mask: Mask | Tensor | None, count: int) -> Mask | None:
    """The same mask, where `count` keys that are always in sight stand before those it speaks of.

    >>> from softlook import masks
    >>> mask_beside(masks.padding([1]), 2).dense((1, 1, 1, 4)).int().flatten()
    tensor([1, 1, 1, 0], dtype=torch.int32)
    """
    if mask is None or (isinstance(mask, Band) and mask == CAUSAL):
        return mask  # what comes first is in sight as it is, and kernels know this mask by name
    return MaskBeside(as_mask(mask), count)


def bias_beside(bias: Bias | Tensor | None, count: int) -> Bias | None:
    """The same bias, where `count` keys that it does not touch stand before those it speaks of.

    >>> from softlook import attention_scores, positions
    >>> query, key = torch.zeros(1, 1, 2, 1), torch.zeros(1, 1, 3, 1)
    >>> attention_scores(query, key, bias=bias_beside(positions.alibi(torch.tensor([1.0])), 1))[0, 0]
    tensor([[ 0.,  0., -1.],
            [ 0., -1.,  0.]])
    """
    return None if bias is None else BiasBeside(as_bias(bias), count)


def inner_tile(tile: Tile, count: int) -> Tile:
    """The part of a tile that lies over the context, by the context's own numbers."""
    start = max(tile.columns.start - count, 0)
    columns = span(start, max(tile.columns.stop - count, start))
    return replace(tile, columns=columns, keys=tile.keys - count)


def size(columns: range) -> int:
    """How many there are; while a model is exported, a span of symbols has no length of its own."""
    return columns.stop - columns.start


def inner_sizes(sizes: Sizes, count: int) -> Sizes:
    B, H, T, S = sizes
    if count > S:
        raise MaskError(f"{count} keys stand before the context, but there are only {S} keys in all")
    return B, H, T, S - count
