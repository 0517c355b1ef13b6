"""The scores and weights of one tile: what every block-wise path is made of."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from softlook.base.shapes import Tile
from softlook.base.tracing import can_read
from softlook.ops.masks.algebra import Mask
from softlook.ops.question import Question

SMALL = 1 << 22
"""Entries of a map that is cheaper to remember for the gradient than to work out again."""


class Scratch:
    """Two stretches of memory that tile after tile is worked out in, where no gradient remembers them.

    To ask the system for fresh pages costs as much as the arithmetic they are for.
    """

    def __init__(self, question: Question) -> None:
        self.like = question.query.new_empty(0, dtype=question.numbers)
        self.kept = [self.like, self.like]

    def take(self, which: int, shape: Sequence[int]) -> Tensor:
        """The first or the second stretch, in this shape."""
        size = math.prod(shape)
        if self.kept[which].numel() < size:
            self.kept[which] = self.like.new_empty(size)
        return self.kept[which][:size].view(*shape)


def tile_scores(question: Question, tile: Tile, scratch: Scratch | None = None) -> tuple[Tensor, Tensor | None]:
    """Scores after cap, bias and mask, (b, h, t, s), and which queries see anything, (b or 1, h or 1, t, 1).

    The second is None when every query certainly sees some key of the tile. A query that sees none has scores
    without meaning, but finite: so no softmax divides zero by zero, forwards or backwards.
    Works in place on what it made itself, which no gradient needs again.
    """
    scores = _raw(question, tile, scratch)
    if question.softcap is not None:
        scores = (scores / question.softcap).tanh() * question.softcap
    seen = None
    if question.bias is not None:
        bias = question.bias.on(question.queries_of(tile), question.keys_of(tile), question.scale, tile)
        if question.bias.may_hide:
            seen = ~bias.isneginf()
            bias = bias.masked_fill(~seen, 0)
        scores = scores.add_(bias.to(scores.dtype))
    return scores, _shade(scores, question.mask, tile, seen)


class TileWeights(NamedTuple):
    """The weights over the keys of one tile alone."""

    weights: Tensor
    """(b, h, t, s)"""
    strongest: Tensor
    """(b, h, t): the largest of each row, 0 where nothing is seen."""
    lse: Tensor
    """(b, h, t): log-sum-exp of the scores, -inf where nothing is seen."""
    scores: Tensor
    """(b, h, t, s)"""


def tile_weights(question: Question, tile: Tile, scratch: Scratch | None = None) -> TileWeights:
    """Softmax over the keys of the tile. Rows sum to one, or to zero where nothing is seen."""
    scores, sees = tile_scores(question, tile, scratch)
    if not len(tile.columns):
        nothing = scores.new_zeros(scores.shape[:3])
        return TileWeights(scores, nothing, nothing - torch.inf, scores)
    weights = torch.softmax(scores, -1, out=None if scratch is None else scratch.take(1, scores.shape))
    # The strongest weight is exp(top - lse), so the softmax has the log-sum-exp in it already.
    if scores.requires_grad:  # one place for both: weights may tie where their scores do not
        strongest, place = weights.max(-1, keepdim=True)
        strongest, top = strongest[..., 0], scores.gather(-1, place)[..., 0]
    else:
        strongest, top = weights.amax(-1), scores.amax(-1)
    lse = top - strongest.log()
    if sees is not None:
        blind = ~sees
        lse, strongest = lse.masked_fill(blind[..., 0], -torch.inf), strongest.masked_fill(blind[..., 0], 0)
        weights = weights.masked_fill(blind, 0) if scratch is None else weights.masked_fill_(blind, 0)
    return TileWeights(weights, strongest, lse, scores)


def mixed(question: Question, weights: Tensor, value: Tensor, tile: Tile) -> Tensor:
    """Weights (b, h, t, s) times the values under the tile, (b, h, t, E)."""
    values = question.keys_of(tile, value).to(weights.dtype)
    return (_grouped(weights, question.repeats) @ values).view(*weights.shape[:3], values.shape[-1])


def average(question: Question, weights: Tensor, value: Tensor, tile: Tile) -> Tensor:
    """The values mixed, and what the relation between positions adds to them. (b, h, t, E)"""
    output = mixed(question, weights, value, tile)
    added = None if question.bias is None else question.bias.added_value(weights, tile)
    return output if added is None else output + added


def kept_from_sink(question: Question, lse: Tensor, tile: Tile) -> tuple[Tensor, Tensor]:
    """With a sink beside the keys: the share the keys keep, and the log-sum-exp of both."""
    assert question.sink is not None
    sink = question.sink[tile.heads.start : tile.heads.stop, None].expand_as(lse)
    return (lse - sink).sigmoid(), torch.logaddexp(lse, sink)


def _raw(question: Question, tile: Tile, scratch: Scratch | None) -> Tensor:
    query, key = question.queries_of(tile), question.keys_of(tile)
    if question.score is not None:
        keys = key.repeat_interleave(question.repeats, 1)
        return question.score(query, keys).to(question.numbers) * question.scale
    rows, columns = _grouped(query, question.repeats).flatten(0, 1), key.flatten(0, 1).mT
    if rows.is_cuda and rows.dtype != question.numbers and not question.needs_gradient:
        scores = torch.bmm(rows, columns, out_dtype=question.numbers)  # half-precision inputs, full-precision sums
    else:
        rows, columns = rows.to(question.numbers), columns.to(question.numbers)
        out = None if scratch is None else scratch.take(0, (*rows.shape[:2], columns.shape[2]))
        scores = torch.bmm(rows, columns, out=out)
    return scores.view(*query.shape[:3], key.shape[2]).mul_(question.scale)


def _grouped(tensor: Tensor, repeats: int) -> Tensor:
    """(b, g*R, t, n) -> (b, g, R*t, n): heads that share keys are rows of one product."""
    b, h, t, n = tensor.shape
    return tensor.reshape(b, h // max(repeats, 1), repeats * t, n)


def _shade(scores: Tensor, mask: Mask | None, tile: Tile, seen: Tensor | None) -> Tensor | None:
    """Hide keys in place, touching only columns that are not clear anyway. Returns which queries see anything."""
    if mask is None and seen is None:
        return None
    clear = tile.columns[:0] if mask is None else mask.clear(tile)
    if mask is not None and seen is None and clear:
        for part in (range(tile.columns.start, clear.start), range(clear.stop, tile.columns.stop)):
            if part:
                shade = darkness(mask.on(replace(tile, columns=part)), scores.dtype)
                scores.narrow(-1, part.start - tile.columns.start, len(part)).add_(shade)
        return None
    if mask is not None:
        seen = mask.on(tile) if seen is None else seen & mask.on(tile)
    assert seen is not None
    sees = someone_blind(seen)
    scores.add_(darkness(seen if sees is None else seen | ~sees, scores.dtype))
    return sees


def someone_blind(seen: Tensor) -> Tensor | None:
    """Which queries see anything, (b, h, t, 1); None where it is cheap to find out that all of them do."""
    sees = seen.any(-1, keepdim=True)
    return None if can_read(seen) and bool(sees.all()) else sees


def darkness(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where a key is seen and -inf where it is hidden, to be added: many times faster than to fill by a mask."""
    return 1 - seen.to(dtype).reciprocal_()
