"""Parts of an attention map: some of its heads, and any of its rows and columns."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from softlook.base.shapes import MapIndices, Tile
from softlook.ops.arguments import AttentionArgs
from softlook.ops.backends.tiled import additive_mask, tile_scores
from softlook.ops.bias import BiasWrapper, ScoreMod
from softlook.ops.masks.base import And, DenseMask, Mask, Not, Or
from softlook.ops.masks.masks import DocumentMask, GraphMask, PaddingMask, PrefixMask, WindowMask


@dataclass(frozen=True, eq=False)
class HeadsMask(Mask):
    """A mask of the heads from `first` on."""

    mask: Mask
    first: int

    def mask_mod(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor, shift: int) -> Tensor:
        return self.mask.mask_mod(b, h + self.first, i, j, shift)

    def tile(self, tile: Tile) -> Tensor:
        return self.mask.tile(_shift_heads(tile, self.first))

    def visible_range(self, tile: Tile) -> range:
        return self.mask.visible_range(_shift_heads(tile, self.first))

    def full_range(self, tile: Tile) -> range:
        return self.mask.full_range(_shift_heads(tile, self.first))


@dataclass(frozen=True, eq=False)
class HeadsBias(BiasWrapper):
    """A bias of the heads from `first` on."""

    first: int

    def tile(self, query: Tensor, key: Tensor, scale: float, tile: Tile) -> Tensor:
        return self.bias.tile(query, key, scale, _shift_heads(tile, self.first))

    def apply(self, scores: Tensor, query: Tensor, key: Tensor, scale: float, tile: Tile) -> Tensor:
        return self.bias.apply(scores, query, key, scale, _shift_heads(tile, self.first))

    def apply_at(self, scores: Tensor, query: Tensor, key: Tensor, scale: float, index: MapIndices) -> Tensor:
        return self.bias.apply_at(scores, query, key, scale, replace(index, heads=index.heads + self.first))

    def score_mod(self, queries: int, keys: int) -> ScoreMod | None:
        inner, first = self.bias.score_mod(queries, keys), self.first
        return None if inner is None else lambda score, b, h, i, j: inner(score, b, h + first, i, j)


def select_heads(args: AttentionArgs, heads: range) -> tuple[AttentionArgs, int]:
    """Return the arguments of consecutive heads, and the index of `heads.start` among them.

    Heads that share keys stay together unless they are all of one group; a score function is given all heads.
    """
    (B, H, T, S), R = args.sizes, max(args.group_size, 1)
    first, last = heads.start // R, (heads.stop - 1) // R
    if args.score is not None or not heads or len(heads) == H:
        return args, heads.start
    chosen = heads if first == last else range(first * R, (last + 1) * R)
    selected = replace(
        args,
        query=args.query[:, chosen.start : chosen.stop],
        key=args.key[:, first : last + 1],
        mask=None if args.mask is None else _select_mask(args.mask, chosen.start),
        bias=None if args.bias is None else HeadsBias(args.bias, chosen.start),
        sink=None if args.sink is None else args.sink[chosen.start : chosen.stop],
        sizes=(B, len(chosen), T, S),
        group_size=len(chosen) // (last + 1 - first),
    )
    return selected, heads.start - chosen.start


def _select_mask(mask: Mask, first: int) -> Mask:
    return HeadsMask(mask, first) if _depends_on_head(mask) else mask


def _depends_on_head(mask: Mask) -> bool:
    """Whether a mask may differ between heads."""
    match mask:
        case And(one, other) | Or(one, other):
            return _depends_on_head(one) or _depends_on_head(other)
        case Not(inner):
            return _depends_on_head(inner)
        case DenseMask(visible):
            return visible.shape[1] != 1
        case _:
            return not isinstance(mask, WindowMask | PrefixMask | PaddingMask | DocumentMask | GraphMask)


def weights_at(args: AttentionArgs, rows: Tensor, columns: Tensor, lse: Tensor) -> Tensor:
    """Weights of any queries and keys, by their indices: exp(score - lse). (B, H, t, s)"""
    scores, total = scores_at(args, rows, columns), lse.index_select(2, rows)[..., None]
    total = total.masked_fill(total == -torch.inf, 0)
    return (scores - total).exp() if scores.requires_grad else scores.sub_(total).exp_()


def scores_at(args: AttentionArgs, rows: Tensor, columns: Tensor) -> Tensor:
    """Scores of any queries and keys, by their indices; -inf where masked. (B, H, t, s)"""
    B, H, T, S = args.sizes
    part = replace(
        args,
        query=args.query.index_select(2, rows),
        key=args.key.index_select(2, columns - args.first_key),
        mask=None,
        bias=None,
        first_key=0,
        sizes=(B, H, len(rows), len(columns)),
    )
    scores, _ = tile_scores(part, part.tile)
    batch, heads, _, _ = part.tile.indices()
    index = MapIndices(batch, heads, rows.view(1, 1, -1, 1), columns.view(1, 1, 1, -1), T, S)
    if args.bias is not None:
        scores = args.bias.apply_at(scores, part.query, part.key, args.scale, index)
    if args.mask is not None:
        visible = args.mask.mask_mod(index.batch, index.heads, index.rows, index.columns, index.shift)
        added = additive_mask(visible, scores.dtype)
        scores = scores + added if scores.requires_grad else scores.add_(added)
    return scores


def _shift_heads(tile: Tile, first: int) -> Tile:
    return replace(tile, heads=range(tile.heads.start + first, tile.heads.stop + first))
