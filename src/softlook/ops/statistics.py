"""What can be known of a map without ever holding it: one pass over strips of queries.

A strip holds a few queries against all the keys they reach. Its weights are softmaxed once, every gauge reads
what it needs from them, and the strip is forgotten: O(N) memory, exact. For a gradient, a strip is recomputed.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from softlook.base.shapes import Tile
from softlook.ops.pooling import Heat
from softlook.ops.question import Question, learns
from softlook.ops.tilework import SMALL, Scratch, average, kept_from_sink, mixed, tile_weights

ELEMENTS = {"cpu": 1 << 21, "cuda": 1 << 25}
"""Entries of the map in hand at a time: what fits a processor's cache, what fills a GPU."""
RANKED_AT_ONCE = 1024
"""Below so many keys, ranking groups of them first gains nothing."""
ROWS = {"cpu": 128, "cuda": 1024}
"""Queries of a strip, where that many fit."""


@dataclass(frozen=True)
class Strip:
    """A few queries and their weights on the keys they reach."""

    tile: Tile
    weights: Tensor
    """(b, h, t, s)"""
    strongest: Tensor
    """(b, h, t)"""
    squares: Tensor | None
    """(b, h, t): sum of the squared weights before a sink took its share; None without a sink."""
    lse: Tensor
    """(b, h, t), over all keys and the sink, also where the strip holds only a part of them."""
    scores: Tensor
    """(b, h, t, s), -inf where hidden."""
    spare: Tensor | None
    """The memory of the scores, where `_entropy` and then `_distance` may overwrite it; None for a gradient."""
    hides: bool
    """May any of the scores be -inf?"""


Parts = dict[str, Tensor]
"""What was read from one strip, by name."""


def read_strips(
    question: Question, read: Callable[[Strip], Parts], lse: Tensor | None = None, value: Tensor | None = None
) -> Iterator[tuple[Tile, Parts]]:
    """What `read` returns for each strip of the map, and the tile it belongs to.

    `lse` is that of all keys, where the question holds only a part of them. Gradients flow back to the question, to
    `lse` and to the `value` that `read` uses; above `SMALL` entries each strip is recomputed for it.
    """
    device, learning = question.query.device.type, question.needs_gradient or learns(lse, value)
    at_a_time, rows = (sizes.get(device, sizes["cuda"]) for sizes in (ELEMENTS, ROWS))
    scratch = None if learning else Scratch(question)
    again = learning and math.prod(question.sizes) > SMALL
    for group in question.tiles(at_a_time, rows):
        for tile in group:
            reached = tile if question.mask is None else replace(tile, columns=question.mask.reach(tile))
            work = partial(_read_strip, question, reached, lse, scratch, read)
            with torch.set_grad_enabled(learning):
                parts = checkpoint(work, question.query, use_reentrant=False) if again else work(question.query)
            yield reached, parts


def measure(
    question: Question,
    ask: frozenset[str],
    *,
    top: int,
    bins: int,
    lse: Tensor | None = None,
    value: Tensor | None = None,
) -> dict[str, Tensor]:
    """All that was asked for, by name; with values, also the "output" they average to."""
    B, H, T, _ = question.sizes
    s, query, numbers = question.key.shape[2], question.query, question.numbers
    found = {name: query.new_zeros((B, H, T), dtype=numbers) for name in ask & PER_QUERY.keys()}
    if ask & {"top_weights", "top_indices"}:
        found["top_weights"] = query.new_zeros((B, H, T, top), dtype=numbers)
        found["top_indices"] = torch.full((B, H, T, top), -1, device=query.device)
    if "received" in ask:
        found["received"] = query.new_zeros((B, H, s), dtype=numbers)
    if value is not None:
        found["output"] = query.new_zeros((B, H, T, value.shape[3]))
    heat = Heat(question, bins, ask) if ask & {"heat_mean", "heat_max"} else None

    def read(strip: Strip) -> Parts:
        parts = {name: gauge(strip) for name, gauge in PER_QUERY.items() if name in found}
        if "received" in found:
            parts["received"] = strip.weights.sum(2)
        if "top_weights" in found:
            parts["top_weights"], indices = best(strip.weights, top)
            indices = indices + strip.tile.columns.start
            parts["top_indices"] = indices.masked_fill(parts["top_weights"] == 0, -1)
        if value is not None:
            parts["output"] = average(question, strip.weights, value, strip.tile)
        return parts if heat is None else parts | heat.cells(strip.weights, strip.tile)

    for tile, parts in read_strips(question, read, lse, value):
        _collect(found, parts, tile, question.first_key)
        if heat is not None:
            heat.take(parts, tile)
    return found | (heat.maps() if heat is not None else {})


def mix(question: Question, lse: Tensor | None, value: Tensor) -> Tensor:
    """The map times `value` (B, G, s, E). (B, H, T, E)"""
    output = value.new_zeros((*question.sizes[:3], value.shape[3]))

    def read(strip: Strip) -> Parts:
        return {"output": mixed(question, strip.weights, value, strip.tile)}

    for tile, parts in read_strips(question, read, lse, value):
        _rows(output, tile).copy_(parts["output"])
    return output


def spread(question: Question, lse: Tensor | None, amounts: Tensor) -> Tensor:
    """The map, turned over, times `amounts` (B, H, T, E): what each key receives. (B, H, s, E)"""
    B, H, _, _ = question.sizes
    received = amounts.new_zeros((B, H, question.key.shape[2], amounts.shape[3]), dtype=question.numbers)

    def read(strip: Strip) -> Parts:
        return {"received": strip.weights.mT @ _rows(amounts, strip.tile).to(strip.weights.dtype)}

    for tile, parts in read_strips(question, read, lse, amounts):
        _columns(received, tile, question.first_key).add_(parts["received"])
    return received


def _read_strip(
    question: Question,
    tile: Tile,
    lse: Tensor | None,
    scratch: Scratch | None,
    read: Callable[[Strip], Parts],
    _: Tensor,
) -> Parts:
    return read(_strip(question, tile, lse, scratch))


def _strip(question: Question, tile: Tile, lse: Tensor | None, scratch: Scratch | None) -> Strip:
    weights, strongest, total, scores = tile_weights(question, tile, scratch)
    squares, kept = None, None
    if lse is not None:
        part, total = total, _rows(lse, tile)
        kept = (part - total.masked_fill(total == -torch.inf, 0)).exp()
    elif question.sink is not None:
        squares = _squares(weights)
        kept, total = kept_from_sink(question, total, tile)
    if kept is not None:
        weights = torch.mul(weights, kept[..., None], out=None if scratch is None else weights)
        strongest = strongest * kept
    hides = question.mask is not None or (question.bias is not None and question.bias.may_hide)
    hides = hides or question.score is not None
    return Strip(tile, weights, strongest, squares, total, scores, None if scratch is None else scores, hides)


def _collect(found: dict[str, Tensor], parts: Parts, tile: Tile, first_key: int) -> None:
    """Write what was read from one strip into its place."""
    for name, part in parts.items():
        if name == "received":
            _columns(found[name], tile, first_key).add_(part)
        elif name in found:
            here = _rows(found[name], tile)
            (here[..., : part.shape[-1]] if name.startswith("top_") else here).copy_(part)


def best(weights: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row and where they stand; all of them if there are fewer.

    They lie in the `count` groups with the largest maxima, so only the members of those are ranked one by one.
    A group is every n-th key; groups are about as large as makes ranking groups and members the same work.
    """
    S = weights.shape[-1]
    size = math.isqrt(S // max(count, 1))
    if size < 4 or S < RANKED_AT_ONCE:
        values, places = weights.topk(min(count, S), dim=-1)
        return values, places
    n = S // size
    members = weights[..., : n * size].unflatten(-1, (size, n))
    chosen = members.amax(-2).topk(count, dim=-1, sorted=False).indices[..., None, :].expand(*members.shape[:-1], count)
    rest = torch.arange(n * size, S, device=weights.device).expand(*weights.shape[:-1], -1)
    places = (chosen + n * torch.arange(size, device=weights.device)[:, None]).flatten(-2)
    places = torch.cat([places, rest], -1)
    values, among = weights.gather(-1, places).topk(count, dim=-1)
    return values, places.gather(-1, among)


def _entropy(strip: Strip) -> Tensor:
    lse = strip.lse.masked_fill(strip.lse == -torch.inf, 0)  # nothing seen: every weight is 0, so is the sum
    logs = torch.sub(strip.scores, lse[..., None], out=strip.spare)
    if strip.hides:
        logs = torch.clamp(logs, min=least_log(logs.dtype), out=strip.spare)
    return -torch.mul(logs, strip.weights, out=strip.spare).sum(-1)


def least_log(dtype: torch.dtype) -> float:
    """A logarithm whose exponential is 0: w log w is 0 times this number, never 0 times -inf."""
    return 2 * math.log(torch.finfo(dtype).tiny)


def _effective_keys(strip: Strip) -> Tensor:
    squares = _squares(strip.weights) if strip.squares is None else strip.squares
    blind = squares == 0
    return (1 / squares.masked_fill(blind, 1)).clamp(min=1).masked_fill(blind, 0)


def _squares(weights: Tensor) -> Tensor:
    return torch.linalg.vector_norm(weights, dim=-1).square()


def _distance(strip: Strip) -> Tensor:
    tile, kind = strip.tile, {"device": strip.weights.device, "dtype": strip.weights.dtype}
    rows = torch.arange(tile.rows.start, tile.rows.stop, **kind) + tile.shift
    gap = rows[:, None] - torch.arange(tile.columns.start, tile.columns.stop, **kind)
    return torch.mul(strip.weights, gap.abs_(), out=strip.spare).sum(-1)


PER_QUERY: dict[str, Callable[[Strip], Tensor]] = {
    "lse": lambda strip: strip.lse,
    "strongest": lambda strip: strip.strongest,
    "entropy": _entropy,
    "effective_keys": _effective_keys,
    "distance": _distance,
}


def _rows(tensor: Tensor, tile: Tile) -> Tensor:
    """The part of a (B, H, T, ...) tensor that belongs to the tile's queries."""
    part = tensor[tile.batch.start : tile.batch.stop, tile.heads.start : tile.heads.stop]
    return part[:, :, tile.rows.start : tile.rows.stop]


def _columns(tensor: Tensor, tile: Tile, first_key: int) -> Tensor:
    """The part of a (B, H, s, ...) tensor that belongs to the tile's keys."""
    part = tensor[tile.batch.start : tile.batch.stop, tile.heads.start : tile.heads.stop]
    return part[:, :, tile.columns.start - first_key : tile.columns.stop - first_key]
