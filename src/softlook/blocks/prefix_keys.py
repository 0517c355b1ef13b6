"""Masks and biases with prefix keys that are always visible.

Queries are aligned with the last keys, so keys in front change neither distances nor causal masks.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from softlook.base.errors import MaskError
from softlook.base.shapes import MapIndices, Tile, make_range
from softlook.ops.bias import Bias, BiasWrapper, ScoreMod, as_bias
from softlook.ops.masks import Mask
from softlook.ops.masks.base import FIRST_KEY, NO_ANCHOR, Sizes, as_mask
from softlook.ops.masks.masks import WindowMask

CAUSAL = WindowMask(None, 0)


@dataclass(frozen=True, eq=False)
class PrefixKeysMask(Mask):
    """A mask of the context, with `count` keys before it that are always visible."""

    mask: Mask
    count: int

    def mask_mod(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor, shift: int) -> Tensor:
        # Prefix keys are passed as the first key of the context; that result is not used.
        return (j < self.count) | self.mask.mask_mod(b, h, i, (j - self.count).clamp(min=0), shift - self.count)

    def tile(self, tile: Tile) -> Tensor:
        inner = inner_tile(tile, self.count)
        seen, width = self.mask.tile(inner), size(inner.columns)
        always = seen.new_ones((*seen.shape[:3], size(tile.columns) - width))
        return torch.cat([always, seen.expand(-1, -1, -1, width)], -1)

    def visible_range(self, tile: Tile) -> range:
        own = range(tile.columns.start, min(max(self.count, tile.columns.start), tile.columns.stop))
        reached = self._outer(self.mask.visible_range(inner_tile(tile, self.count)))
        return own if not reached else range(own.start if own else reached.start, reached.stop)

    def full_range(self, tile: Tile) -> range:
        own = range(tile.columns.start, min(max(self.count, tile.columns.start), tile.columns.stop))
        cleared = self._outer(self.mask.full_range(inner_tile(tile, self.count)))
        if own and cleared and cleared.start == own.stop:
            return range(own.start, cleared.stop)
        return max(own, cleared, key=len)

    def anchors(self, queries: int, keys: int) -> frozenset[str]:
        itself = self.mask.anchors(queries, keys - self.count) - FIRST_KEY
        return itself | (FIRST_KEY if self.count else NO_ANCHOR)

    @property
    def can_compile(self) -> bool:
        return self.mask.can_compile

    def validate(self, sizes: Sizes) -> None:
        self.mask.validate(inner_sizes(sizes, self.count))

    def _outer(self, columns: range) -> range:
        return range(columns.start + self.count, columns.stop + self.count)

    def __str__(self) -> str:
        return f"({self.mask} after {self.count} prefix keys)"


@dataclass(frozen=True, eq=False)
class PrefixKeysBias(BiasWrapper):
    """A bias of the context, with `count` keys before it that have none."""

    count: int

    def tile(self, query: Tensor, key: Tensor, scale: float, tile: Tile) -> Tensor:
        inner = inner_tile(tile, self.count)
        untouched = size(tile.columns) - size(inner.columns)
        if not size(inner.columns):
            return query.new_zeros(1, 1, 1, untouched)
        numbers = self.bias.tile(query, key[:, :, untouched:], scale, inner)
        return torch.nn.functional.pad(numbers, (untouched, 0))

    def score_mod(self, queries: int, keys: int) -> ScoreMod | None:
        inner, count = self.bias.score_mod(queries, keys - self.count), self.count
        if inner is None:
            return None
        return lambda score, b, h, i, j: torch.where(j < count, score, inner(score, b, h, i, (j - count).clamp(min=0)))

    def apply(self, scores: Tensor, query: Tensor, key: Tensor, scale: float, tile: Tile) -> Tensor:
        if self.is_additive:
            return super().apply(scores, query, key, scale, tile)
        inner = inner_tile(tile, self.count)
        untouched = size(tile.columns) - size(inner.columns)
        if not size(inner.columns):
            return scores
        changed = self.bias.apply(scores[..., untouched:], query, key[:, :, untouched:], scale, inner)
        return torch.cat([scores[..., :untouched], changed], -1)

    def apply_at(self, scores: Tensor, query: Tensor, key: Tensor, scale: float, index: MapIndices) -> Tensor:
        inner = replace(index, columns=(index.columns - self.count).clamp(min=0), keys=index.keys - self.count)
        return torch.where(index.columns < self.count, scores, self.bias.apply_at(scores, query, key, scale, inner))

    def validate(self, sizes: Sizes, head_dim: int) -> None:
        self.bias.validate(inner_sizes(sizes, self.count), head_dim)

    def relative_values(self, weights: Tensor, tile: Tile) -> Tensor | None:
        inner = inner_tile(tile, self.count)
        return self.bias.relative_values(weights[..., size(tile.columns) - size(inner.columns) :], inner)

    @property
    def has_relative_values(self) -> bool:
        return self.bias.has_relative_values

    @property
    def is_dense(self) -> bool:
        return self.bias.is_dense

    def __str__(self) -> str:
        return f"({self.bias} after {self.count} prefix keys)"


def mask_with_prefix_keys(mask: Mask | Tensor | None, count: int) -> Mask | None:
    """The same mask with `count` visible keys before the context.

    >>> from softlook import masks
    >>> mask_with_prefix_keys(masks.padding([1]), 2).to_dense((1, 1, 1, 4)).int().flatten()
    tensor([1, 1, 1, 0], dtype=torch.int32)
    """
    if mask is None or (isinstance(mask, WindowMask) and mask == CAUSAL):
        return mask  # keys in front are visible as it is, and kernels have a fast path for this mask
    return PrefixKeysMask(as_mask(mask), count)


def bias_with_prefix_keys(bias: Bias | Tensor | None, count: int) -> Bias | None:
    """The same bias with `count` keys without bias before the context.

    >>> from softlook import attention_scores, positions
    >>> query, key = torch.zeros(1, 1, 2, 1), torch.zeros(1, 1, 3, 1)
    >>> attention_scores(query, key, bias=bias_with_prefix_keys(positions.alibi(torch.tensor([1.0])), 1))[0, 0]
    tensor([[ 0.,  0., -1.],
            [ 0., -1.,  0.]])
    """
    return None if bias is None else PrefixKeysBias(as_bias(bias), count)


def inner_tile(tile: Tile, count: int) -> Tile:
    """The part of a tile over the context, in the indices of the context."""
    start = max(tile.columns.start - count, 0)
    columns = make_range(start, max(tile.columns.stop - count, start))
    return replace(tile, columns=columns, keys=tile.keys - count)


def size(columns: range) -> int:
    """How many there are; while a model is exported, a make_range of symbols has no length of its own."""
    return columns.stop - columns.start


def inner_sizes(sizes: Sizes, count: int) -> Sizes:
    B, H, T, S = sizes
    if count > S:
        raise MaskError(f"expected at least {count} prefix keys, got {S} keys in all")
    return B, H, T, S - count
