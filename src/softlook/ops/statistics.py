"""What can be known of a map without ever holding it: one pass over strips of queries.

A strip holds a few queries against all the keys they reach. Its weights are softmaxed once,
every gauge reads what it needs from them, and the strip is forgotten: O(N) memory, exact.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from softlook.base.shapes import Tile
from softlook.ops.pooling import Heat
from softlook.ops.question import Question
from softlook.ops.tilework import Scratch, average, kept_from_sink, mixed, tile_weights

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
    lse: Tensor
    """(b, h, t), over all keys and the sink, also where the strip holds only a part of them."""
    scores: Tensor
    """(b, h, t, s), -inf where hidden. `_entropy` and then `_distance` overwrite them."""
    hides: bool
    """May any of them be -inf?"""


def strips(question: Question, lse: Tensor | None = None) -> Iterator[Strip]:
    """The map, strip by strip, each valid until the next is drawn.

    `lse` is that of all keys, where the question holds only a part of them.
    """
    device = question.query.device.type
    at_a_time, rows = (sizes.get(device, sizes["cuda"]) for sizes in (ELEMENTS, ROWS))
    scratch = Scratch(question)
    for group in question.tiles(at_a_time, rows):
        for tile in group:
            yield _strip(question, tile, lse, scratch)


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
    for strip in strips(question, lse):
        _read(strip, found, question.first_key)
        if heat is not None:
            heat.take(strip.weights, strip.tile)
        if value is not None:
            _rows(found["output"], strip.tile).copy_(average(question, strip.weights, value, strip.tile))
    return found | (heat.maps() if heat is not None else {})


def mix(question: Question, lse: Tensor | None, value: Tensor) -> Tensor:
    """The map times `value` (B, G, s, E). (B, H, T, E)"""
    output = value.new_zeros((*question.sizes[:3], value.shape[3]))
    for strip in strips(question, lse):
        _rows(output, strip.tile).copy_(mixed(question, strip.weights, value, strip.tile))
    return output


def spread(question: Question, lse: Tensor | None, amounts: Tensor) -> Tensor:
    """The map, turned over, times `amounts` (B, H, T, E): what each key receives. (B, H, s, E)"""
    B, H, _, _ = question.sizes
    received = amounts.new_zeros((B, H, question.key.shape[2], amounts.shape[3]), dtype=question.numbers)
    for strip in strips(question, lse):
        part = _rows(amounts, strip.tile).to(strip.weights.dtype)
        _columns(received, strip.tile, question.first_key).add_(strip.weights.mT @ part)
    return received


def _strip(question: Question, tile: Tile, lse: Tensor | None, scratch: Scratch) -> Strip:
    if question.mask is not None:
        tile = replace(tile, columns=question.mask.reach(tile))
    look = tile_weights(question, tile, scratch)
    hides = question.mask is not None or (question.bias is not None and question.bias.may_hide)
    if lse is not None:
        total = _rows(lse, tile)
        kept = (look.lse - total.masked_fill(total == -torch.inf, 0)).exp()
    elif question.sink is not None:
        kept, total = kept_from_sink(question, look.lse, tile)
    else:
        return Strip(tile, look.weights, look.strongest, look.lse, look.scores, hides)
    return Strip(tile, look.weights.mul_(kept[..., None]), look.strongest * kept, total, look.scores, hides)


def _read(strip: Strip, found: dict[str, Tensor], first_key: int) -> None:
    for name, gauge in PER_QUERY.items():
        if name in found:
            _rows(found[name], strip.tile).copy_(gauge(strip))
    if "received" in found:
        _columns(found["received"], strip.tile, first_key).add_(strip.weights.sum(2))
    if "top_weights" in found:
        weights, indices = best(strip.weights, found["top_weights"].shape[-1])
        indices = (indices + strip.tile.columns.start).masked_fill(weights == 0, -1)
        _rows(found["top_weights"], strip.tile)[..., : weights.shape[-1]] = weights
        _rows(found["top_indices"], strip.tile)[..., : weights.shape[-1]] = indices


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
    lse = strip.lse.clamp(min=torch.finfo(strip.lse.dtype).min)  # nothing seen: every weight is 0, so is the sum
    logs = strip.scores.sub_(lse[..., None])
    if strip.hides:
        logs.clamp_(min=torch.finfo(logs.dtype).min)  # 0 times a number, not 0 times -inf
    return -logs.mul_(strip.weights).sum(-1)


def _effective_keys(strip: Strip) -> Tensor:
    mass, square = strip.weights.sum(-1), torch.linalg.vector_norm(strip.weights, dim=-1).square()
    return torch.where(square == 0, square, mass.square() / square)


def _distance(strip: Strip) -> Tensor:
    tile, kind = strip.tile, {"device": strip.weights.device, "dtype": strip.weights.dtype}
    rows = torch.arange(tile.rows.start, tile.rows.stop, **kind) + tile.shift
    gap = rows[:, None] - torch.arange(tile.columns.start, tile.columns.stop, **kind)
    return torch.mul(strip.weights, gap.abs_(), out=strip.scores).sum(-1)


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
