"""Statistics of an attention map, one pass over row tiles.

A row tile holds a few queries and all the keys they see. Its weights are computed once, every statistic is read from
them, and the tile is discarded: exact, in O(N) memory. For the gradient, tiles are recomputed.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from softlook.base.shapes import Tile
from softlook.ops.arguments import AttentionArgs, needs_grad
from softlook.ops.backends.tiled import (
    RECOMPUTE_ABOVE,
    Workspace,
    share_after_sink,
    tile_scores,
    tile_weights,
    weighted_average,
    weighted_values,
)
from softlook.ops.pooling import PooledMap

TILE_ELEMENTS = {"cpu": 1 << 21, "cuda": 1 << 25}
"""Map entries per tile: what fits a CPU cache, what fills a GPU."""
TILE_ROWS = {"cpu": 128, "cuda": 1024}
"""Queries per tile, if that many fit."""
GROUPED_TOP_K_MIN_KEYS = 1024
"""With fewer keys, ranking groups of them first gains nothing."""


@dataclass(frozen=True)
class RowTile:
    """A few queries and their weights on the keys they see."""

    tile: Tile
    weights: Tensor
    """(b, h, t, s)"""
    max_weight: Tensor
    """(b, h, t)"""
    squares: Tensor | None
    """(b, h, t): sum of squared weights before a sink takes its share; None without a sink."""
    lse: Tensor
    """(b, h, t), over all keys and the sink, also where the tile holds a chunk of the keys."""
    scores: Tensor
    """(b, h, t, s), -inf where masked."""
    scratch: Tensor | None
    """The memory of the scores, which `_entropy` and then `_mean_distance` may overwrite; None with a gradient."""
    may_mask: bool
    """Whether scores may be -inf."""


Parts = dict[str, Tensor]
"""What was read from one row tile, by name."""


def map_row_tiles(
    args: AttentionArgs, read: Callable[[RowTile], Parts], lse: Tensor | None = None, value: Tensor | None = None
) -> Iterator[tuple[Tile, Parts]]:
    """Yield each row tile of the map and what `read` returns for it.

    `lse` is that of all keys, where the arguments hold a chunk. Gradients flow to the arguments, to `lse` and to the
    `value` that `read` uses; maps with more than `RECOMPUTE_ABOVE` entries are recomputed for it.
    """
    device, learning = args.query.device.type, args.requires_grad or needs_grad(lse, value)
    elements, rows = (sizes.get(device, sizes["cuda"]) for sizes in (TILE_ELEMENTS, TILE_ROWS))
    args = args.upcast() if learning else args
    workspace = None if learning else Workspace(args)
    recompute = learning and math.prod(args.sizes) > RECOMPUTE_ABOVE
    for group in args.tiles(elements, rows):
        for tile in group:
            visible = tile if args.mask is None else replace(tile, columns=args.mask.visible_range(tile))
            run = partial(_read_row_tile, args, visible, lse, workspace, read)
            with torch.set_grad_enabled(learning):
                parts = checkpoint(run, args.query, use_reentrant=False) if recompute else run(args.query)
            yield visible, parts


def compute_statistics(
    args: AttentionArgs,
    stats: frozenset[str],
    *,
    top_k: int,
    bins: int,
    lse: Tensor | None = None,
    value: Tensor | None = None,
) -> dict[str, Tensor]:
    """Compute the requested statistics by name; with values, also the attention "output"."""
    B, H, T, _ = args.sizes
    s, query, dtype = args.key.shape[2], args.query, args.compute_dtype
    results = {name: query.new_zeros((B, H, T), dtype=dtype) for name in stats & PER_QUERY.keys()}
    if stats & {"top_weights", "top_indices"}:
        results["top_weights"] = query.new_zeros((B, H, T, top_k), dtype=dtype)
        results["top_indices"] = torch.full((B, H, T, top_k), -1, device=query.device)
    if "received" in stats:
        results["received"] = query.new_zeros((B, H, s), dtype=dtype)
    if value is not None:
        results["output"] = query.new_zeros((B, H, T, value.shape[3]))
    pooled = PooledMap(args, bins, stats) if stats & {"pooled_mean", "pooled_max"} else None

    def read(rows: RowTile) -> Parts:
        parts = {name: stat(rows) for name, stat in PER_QUERY.items() if name in results}
        if "received" in results:
            parts["received"] = rows.weights.sum(2)
        if "top_weights" in results:
            parts["top_weights"], indices = grouped_top_k(rows.weights, top_k)
            indices = indices + rows.tile.columns.start
            parts["top_indices"] = indices.masked_fill(parts["top_weights"] == 0, -1)
        if value is not None:
            parts["output"] = weighted_average(args, rows.weights, value, rows.tile)
        return parts if pooled is None else parts | pooled.cells(rows.weights, rows.tile)

    for tile, parts in map_row_tiles(args, read, lse, value):
        _collect(results, parts, tile, args.first_key)
        if pooled is not None:
            pooled.add(parts, tile)
    return results | (pooled.maps() if pooled is not None else {})


def apply_weights(args: AttentionArgs, lse: Tensor | None, value: Tensor) -> Tensor:
    """Multiply the map with `value` (B, G, s, E). (B, H, T, E)"""
    output = value.new_zeros((*args.sizes[:3], value.shape[3]))
    values = value.to(args.compute_dtype) if needs_grad(value) else value  # gradients of tiles are summed in this dtype

    def read(rows: RowTile) -> Parts:
        return {"output": weighted_values(args, rows.weights, values, rows.tile)}

    for tile, parts in map_row_tiles(args, read, lse, values):
        _row_slice(output, tile).copy_(parts["output"])
    return output


def apply_transposed(args: AttentionArgs, lse: Tensor | None, amounts: Tensor) -> Tensor:
    """Multiply the transposed map with `amounts` (B, H, T, E). (B, H, s, E)"""
    B, H, _, _ = args.sizes
    received = amounts.new_zeros((B, H, args.key.shape[2], amounts.shape[3]), dtype=args.compute_dtype)

    def read(rows: RowTile) -> Parts:
        return {"received": rows.weights.mT @ _row_slice(amounts, rows.tile).to(rows.weights.dtype)}

    for tile, parts in map_row_tiles(args, read, lse, amounts):
        _column_slice(received, tile, args.first_key).add_(parts["received"])
    return received


def block_weights(args: AttentionArgs, tile: Tile, lse: Tensor) -> Tensor:
    """Weights of a part of the map, each of which is exact on its own: exp(score - lse). (b, h, t, s)"""
    columns = tile.columns if args.mask is None else args.mask.visible_range(tile)
    columns = columns or tile.columns[:0]  # an empty range may be outside of the tile
    scores, visible_rows = tile_scores(args, replace(tile, columns=columns))
    total = _row_slice(lse, tile)[..., None]
    weights = (scores - total.masked_fill(total == -torch.inf, 0)).exp()
    weights = weights if visible_rows is None else weights.masked_fill(~visible_rows, 0)
    margins = columns.start - tile.columns.start, tile.columns.stop - columns.stop
    return torch.nn.functional.pad(weights, margins) if any(margins) else weights


def _read_row_tile(
    args: AttentionArgs,
    tile: Tile,
    lse: Tensor | None,
    workspace: Workspace | None,
    read: Callable[[RowTile], Parts],
    _: Tensor,
) -> Parts:
    return read(_row_tile(args, tile, lse, workspace))


def _row_tile(args: AttentionArgs, tile: Tile, lse: Tensor | None, workspace: Workspace | None) -> RowTile:
    weights, max_weight, total, scores = tile_weights(args, tile, workspace)
    squares, share = None, None
    if lse is not None:
        own, total = total, _row_slice(lse, tile)
        share = (own - total.masked_fill(total == -torch.inf, 0)).exp()
    elif args.sink is not None:
        squares = _squares(weights)
        share, total = share_after_sink(args, total, tile)
    if share is not None:
        weights = torch.mul(weights, share[..., None], out=None if workspace is None else weights)
        max_weight = max_weight * share
    may_mask = args.mask is not None or args.score is not None or (args.bias is not None and args.bias.may_mask)
    return RowTile(tile, weights, max_weight, squares, total, scores, None if workspace is None else scores, may_mask)


def _collect(results: dict[str, Tensor], parts: Parts, tile: Tile, first_key: int) -> None:
    """Write what was read from one row tile into the results."""
    for name, part in parts.items():
        if name == "received":
            _column_slice(results[name], tile, first_key).add_(part)
        elif name in results:
            target = _row_slice(results[name], tile)
            (target[..., : part.shape[-1]] if name.startswith("top_") else target).copy_(part)


def grouped_top_k(weights: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` largest entries of each row and their indices; all of them if there are fewer.

    They are in the `count` groups with the largest maxima, so only the members of those are ranked. A group is every
    n-th key; the group size balances ranking groups and ranking members.
    """
    S = weights.shape[-1]
    size = math.isqrt(S // max(count, 1))
    if size < 4 or S < GROUPED_TOP_K_MIN_KEYS:
        values, indices = weights.topk(min(count, S), dim=-1)
        return values, indices
    n = S // size
    members = weights[..., : n * size].unflatten(-1, (size, n))
    groups = members.amax(-2).topk(count, dim=-1, sorted=False).indices[..., None, :].expand(*members.shape[:-1], count)
    rest = torch.arange(n * size, S, device=weights.device).expand(*weights.shape[:-1], -1)
    candidates = (groups + n * torch.arange(size, device=weights.device)[:, None]).flatten(-2)
    candidates = torch.cat([candidates, rest], -1)
    values, order = weights.gather(-1, candidates).topk(count, dim=-1)
    return values, candidates.gather(-1, order)


def _entropy(rows: RowTile) -> Tensor:
    lse = rows.lse.masked_fill(rows.lse == -torch.inf, 0)  # fully masked: every weight is 0, and so is the sum
    logs = torch.sub(rows.scores, lse[..., None], out=rows.scratch)
    if rows.may_mask:
        logs = torch.clamp(logs, min=min_log(logs.dtype), out=rows.scratch)
    return -torch.mul(logs, rows.weights, out=rows.scratch).sum(-1)


def min_log(dtype: torch.dtype) -> float:
    """Return a finite logarithm whose exponential is 0, so that w log w is never 0 times -inf."""
    return 2 * math.log(torch.finfo(dtype).tiny)


def _effective_keys(rows: RowTile) -> Tensor:
    squares = _squares(rows.weights) if rows.squares is None else rows.squares
    masked = squares == 0
    return (1 / squares.masked_fill(masked, 1)).clamp(min=1).masked_fill(masked, 0)


def _squares(weights: Tensor) -> Tensor:
    return torch.linalg.vector_norm(weights, dim=-1).square()


def _mean_distance(rows: RowTile) -> Tensor:
    tile, options = rows.tile, {"device": rows.weights.device, "dtype": rows.weights.dtype}
    positions = torch.arange(tile.rows.start, tile.rows.stop, **options) + tile.shift
    distance = positions[:, None] - torch.arange(tile.columns.start, tile.columns.stop, **options)
    return torch.mul(rows.weights, distance.abs_(), out=rows.scratch).sum(-1)


PER_QUERY: dict[str, Callable[[RowTile], Tensor]] = {
    "lse": lambda rows: rows.lse,
    "max_weight": lambda rows: rows.max_weight,
    "entropy": _entropy,
    "effective_keys": _effective_keys,
    "mean_distance": _mean_distance,
}


def _row_slice(tensor: Tensor, tile: Tile) -> Tensor:
    """The part of a (B, H, T, ...) tensor for the tile's queries."""
    part = tensor[tile.batch.start : tile.batch.stop, tile.heads.start : tile.heads.stop]
    return part[:, :, tile.rows.start : tile.rows.stop]


def _column_slice(tensor: Tensor, tile: Tile, first_key: int) -> Tensor:
    """The part of a (B, H, s, ...) tensor for the tile's keys."""
    part = tensor[tile.batch.start : tile.batch.stop, tile.heads.start : tile.heads.stop]
    return part[:, :, tile.columns.start - first_key : tile.columns.stop - first_key]
