"""Tiled backend: any mask, bias and score, never the whole map.

Each tile of queries visits its keys tile by tile and keeps a running average; two averages are merged exactly by their
log-sum-exp (FlashAttention's online softmax). For the gradient, tiles are recomputed, not stored.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from softlook.base.shapes import Tile
from softlook.base.tensors import can_read
from softlook.ops.arguments import AttentionArgs
from softlook.ops.masks.base import Mask

RECOMPUTE_ABOVE = 1 << 22
"""Maps with more entries are recomputed in the backward pass instead of being stored."""


class Workspace:
    """Two buffers that tile after tile is computed in, where no gradient needs them.

    Allocating fresh pages would cost as much as the arithmetic.
    """

    def __init__(self, args: AttentionArgs) -> None:
        self.like = args.query.new_empty(0, dtype=args.compute_dtype)
        self.buffers = [self.like, self.like]

    def take(self, index: int, shape: Sequence[int]) -> Tensor:
        """Return the first or the second buffer in this shape."""
        size = math.prod(shape)
        if self.buffers[index].numel() < size:
            self.buffers[index] = self.like.new_empty(size)
        return self.buffers[index][:size].view(*shape)


def tile_scores(args: AttentionArgs, tile: Tile, workspace: Workspace | None = None) -> tuple[Tensor, Tensor | None]:
    """Return scores after softcap, bias and mask, (b, h, t, s), and which rows see any key, (b or 1, h or 1, t, 1).

    The second is None if every row certainly sees a key of the tile. The scores of a fully masked row are meaningless
    but finite, so that no softmax divides zero by zero, forward or backward.
    Operates in place on its own results, which no gradient needs.
    """
    scores = _scaled_scores(args, tile, workspace)
    if args.softcap is not None:
        scores = (scores / args.softcap).tanh() * args.softcap
    visible, bias = None, args.bias
    if bias is not None and bias.is_additive:
        values = bias.tile(args.query_tile(tile), args.key_tile(tile), args.scale, tile)
        if bias.may_mask:
            visible = ~values.isneginf()
            values = values.masked_fill(~visible, 0)
        scores = scores.add_(values.to(scores.dtype))
    elif bias is not None:
        changed = bias.apply(scores, args.query_tile(tile), args.key_tile(tile), args.scale, tile)
        visible = ~changed.isneginf()
        scores = changed.masked_fill(~visible, 0)
    return scores, _apply_mask(scores, args.mask, tile, visible)


class TileWeights(NamedTuple):
    """Weights over the keys of one tile alone."""

    weights: Tensor
    """(b, h, t, s)"""
    max_weight: Tensor
    """(b, h, t): 0 for a fully masked row."""
    lse: Tensor
    """(b, h, t): log-sum-exp of the scores, -inf for a fully masked row."""
    scores: Tensor
    """(b, h, t, s)"""


def tile_weights(args: AttentionArgs, tile: Tile, workspace: Workspace | None = None) -> TileWeights:
    """Softmax over the keys of the tile. Rows sum to one, or to zero where fully masked."""
    scores, visible_rows = tile_scores(args, tile, workspace)
    if not len(tile.columns):
        zeros = scores.new_zeros(scores.shape[:3])
        return TileWeights(scores, zeros, zeros - torch.inf, scores)
    weights = torch.softmax(scores, -1, out=None if workspace is None else workspace.take(1, scores.shape))
    # The largest weight is exp(max score - lse), so the softmax yields the log-sum-exp.
    if scores.requires_grad:  # one index for both: weights may tie where their scores do not
        max_weight, index = weights.max(-1, keepdim=True)
        max_weight, max_score = max_weight[..., 0], scores.gather(-1, index)[..., 0]
    else:
        max_weight, max_score = weights.amax(-1), scores.amax(-1)
    lse = max_score - max_weight.log()
    if visible_rows is not None:
        masked = ~visible_rows
        lse, max_weight = lse.masked_fill(masked[..., 0], -torch.inf), max_weight.masked_fill(masked[..., 0], 0)
        weights = weights.masked_fill(masked, 0) if workspace is None else weights.masked_fill_(masked, 0)
    return TileWeights(weights, max_weight, lse, scores)


def weighted_values(args: AttentionArgs, weights: Tensor, value: Tensor, tile: Tile) -> Tensor:
    """Multiply weights (b, h, t, s) with the values under the tile. (b, h, t, E)"""
    values = args.key_tile(tile, value).to(weights.dtype)
    return (_grouped(weights, args.group_size) @ values).view(*weights.shape[:3], values.shape[-1])


def weighted_average(args: AttentionArgs, weights: Tensor, value: Tensor, tile: Tile) -> Tensor:
    """Return the weighted values plus relative values of the bias. (b, h, t, E)"""
    output = weighted_values(args, weights, value, tile)
    added = None if args.bias is None else args.bias.relative_values(weights, tile)
    return output if added is None else output + added


def share_after_sink(args: AttentionArgs, lse: Tensor, tile: Tile) -> tuple[Tensor, Tensor]:
    """Return the share of the weight that a sink leaves to the keys, and the log-sum-exp of both."""
    assert args.sink is not None
    sink = args.sink[tile.heads.start : tile.heads.stop, None].expand_as(lse)
    return (lse - sink).sigmoid(), torch.logaddexp(lse, sink)


def _scaled_scores(args: AttentionArgs, tile: Tile, workspace: Workspace | None) -> Tensor:
    query, key, dtype = args.query_tile(tile), args.key_tile(tile), args.compute_dtype
    if args.score is not None:
        keys = key.repeat_interleave(args.group_size, 1)
        return args.score(query, keys).to(dtype) * args.scale
    rows, columns = _grouped(query, args.group_size).flatten(0, 1), key.flatten(0, 1).mT
    if rows.is_cuda and rows.dtype != dtype and not args.requires_grad:
        scores = torch.bmm(rows, columns, out_dtype=dtype)  # half-precision inputs, float32 sums
    else:
        rows, columns = rows.to(dtype), columns.to(dtype)
        out = None if workspace is None else workspace.take(0, (*rows.shape[:2], columns.shape[2]))
        scores = torch.bmm(rows, columns, out=out)
    return scores.view(*query.shape[:3], key.shape[2]).mul_(args.scale)


def _grouped(tensor: Tensor, group_size: int) -> Tensor:
    """(b, g*R, t, n) -> (b, g, R*t, n): heads that share keys become rows of one product."""
    b, h, t, n = tensor.shape
    return tensor.reshape(b, h // max(group_size, 1), group_size * t, n)


def _apply_mask(scores: Tensor, mask: Mask | None, tile: Tile, visible: Tensor | None) -> Tensor | None:
    """Mask scores in place, skipping columns that every row sees. Return which rows see any key."""
    if mask is None and visible is None:
        return None
    full = tile.columns[:0] if mask is None else mask.full_range(tile)
    if mask is not None and visible is None and full:
        for part in (range(tile.columns.start, full.start), range(full.stop, tile.columns.stop)):
            if part:
                added = additive_mask(mask.tile(replace(tile, columns=part)), scores.dtype)
                scores.narrow(-1, part.start - tile.columns.start, len(part)).add_(added)
        return None
    if mask is not None:
        visible = mask.tile(tile) if visible is None else visible & mask.tile(tile)
    assert visible is not None
    rows = rows_with_keys(visible)
    scores.add_(additive_mask(visible if rows is None else visible | ~rows, scores.dtype))
    return rows


def rows_with_keys(visible: Tensor) -> Tensor | None:
    """Return which rows see any key, (b, h, t, 1); None if it is cheap to find that all do."""
    rows = visible.any(-1, keepdim=True)
    return None if can_read(visible) and bool(rows.all()) else rows


def additive_mask(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """Return 0 where visible and -inf where masked; adding it is many times faster than `masked_fill`."""
    return torch.where(visible, torch.zeros((), dtype=dtype, device=visible.device), -torch.inf)


TILE_ELEMENTS = {"cpu": 1 << 20, "cuda": 1 << 26}
"""Map entries per tile: what fits a CPU cache, what fills a GPU."""
TILE_ROWS = 128
"""Queries per tile, if that many fit."""
TILE_COLUMNS = 1 << 14
"""Keys per tile."""


def tiled_attention(args: AttentionArgs, value: Tensor, dropout: float) -> Tensor:
    """Average the values, tile by tile. (B, H, T, E)"""
    return tiled_attention_with_lse(args, value, dropout)[0]


def tiled_attention_with_lse(args: AttentionArgs, value: Tensor, dropout: float) -> tuple[Tensor, Tensor]:
    """Return the output (B, H, T, E) and the log-sum-exp of each row (B, H, T), both differentiable."""
    B, H, T, _ = args.sizes
    dtype, learning = value.dtype, args.requires_grad_with(value)
    recompute = learning and math.prod(args.sizes) > RECOMPUTE_ABOVE
    if learning:
        args, value = args.upcast(), value.to(args.compute_dtype)
    outputs, lses = [], []
    for group in args.tiles(tile_elements(args.query.device), TILE_ROWS):
        # The values are passed explicitly: from them `checkpoint` knows which device's RNG state to restore.
        runs = [partial(_row_tile, args, dropout, tile) for tile in group]
        results = [checkpoint(run, value, use_reentrant=False) if recompute else run(value) for run in runs]
        outputs.append(torch.cat([output for output, _ in results], 2).flatten(0, 1))
        lses.append(torch.cat([lse for _, lse in results], 2).flatten(0, 1))
    return torch.cat(outputs).view(B, H, T, -1).to(dtype), torch.cat(lses).view(B, H, T)


def tile_elements(device: torch.device) -> int:
    return TILE_ELEMENTS.get(device.type, TILE_ELEMENTS["cuda"])


def merge_pair(output: Tensor, lse: Tensor, other: Tensor, other_lse: Tensor) -> tuple[Tensor, Tensor]:
    """Merge two averages over different keys into the average over all of them."""
    total = torch.logaddexp(lse, other_lse)
    finite = total.masked_fill(total == -torch.inf, 0)  # both parts fully masked: 0 * exp(-inf) = 0
    return output * (lse - finite).exp()[..., None] + other * (other_lse - finite).exp()[..., None], total


def _row_tile(args: AttentionArgs, dropout: float, rows: Tile, value: Tensor) -> tuple[Tensor, Tensor]:
    columns = rows.columns if args.mask is None else args.mask.visible_range(rows)
    output, lse = None, None
    for start in range(columns.start, max(columns.stop, columns.start + 1), TILE_COLUMNS):
        tile = replace(rows, columns=range(start, min(start + TILE_COLUMNS, columns.stop)))
        part = tile_weights(args, tile)
        average = weighted_average(args, torch.nn.functional.dropout(part.weights, dropout), value, tile)
        if output is None or lse is None:
            output, lse = average, part.lse
        else:
            output, lse = merge_pair(output, lse, average, part.lse)
    assert output is not None and lse is not None
    if args.sink is None:
        return output, lse
    share, lse = share_after_sink(args, lse, rows)
    return output * share[..., None], lse
