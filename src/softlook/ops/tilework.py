"""The scores and weights of one tile: what every block-wise path is made of."""

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from softlook.base.shapes import Tile
from softlook.ops.masks.algebra import Mask
from softlook.ops.question import Question


def tile_scores(question: Question, tile: Tile) -> tuple[Tensor, Tensor | None]:
    """Scores after cap, bias and mask, (b, h, t, s), and where a key is hidden.

    The second is None when every query of the tile certainly sees some key of it.
    Works in place on what it made itself, which no gradient needs again.
    """
    scores = _raw(question, tile)
    if question.softcap is not None:
        scores = (scores / question.softcap).tanh() * question.softcap
    hidden = None
    if question.bias is not None:
        bias = question.bias.on(question.queries_of(tile), question.keys_of(tile), question.scale, tile)
        scores = scores.add_(bias.to(scores.dtype))
        hidden = bias.isneginf() if question.bias.may_hide else None
    if question.mask is not None:
        hidden = _hide(scores, question.mask, tile, hidden)
    return scores, hidden


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


def tile_weights(question: Question, tile: Tile) -> TileWeights:
    """Softmax over the keys of the tile. Rows sum to one, or to zero where nothing is seen."""
    scores, hidden = tile_scores(question, tile)
    if not len(tile.columns):
        nothing = scores.new_zeros(scores.shape[:3])
        return TileWeights(scores, nothing, nothing - torch.inf, scores)
    weights = scores.softmax(-1)
    if hidden is not None:
        # Selected by the mask, not by the number: a row that sees nothing becomes zeros, a real NaN stays.
        weights = weights.masked_fill(hidden, 0)
    top, strongest = scores.amax(-1), weights.amax(-1)
    # The strongest weight is exp(top - lse), so the softmax has the log-sum-exp in it already.
    lse = torch.where(top == -torch.inf, top, top - strongest.log())
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


def _raw(question: Question, tile: Tile) -> Tensor:
    query, key = question.queries_of(tile), question.keys_of(tile)
    if question.score is not None:
        keys = key.repeat_interleave(question.repeats, 1).to(question.numbers)
        return question.score(query.to(question.numbers), keys) * question.scale
    rows = _grouped(query, question.repeats).flatten(0, 1)
    scores = _product(rows, key.flatten(0, 1).mT, question)
    return scores.view(*query.shape[:3], key.shape[2]).mul_(question.scale)


def _product(rows: Tensor, columns: Tensor, question: Question) -> Tensor:
    if rows.is_cuda and rows.dtype != question.numbers and not question.needs_gradient:
        return torch.bmm(rows, columns, out_dtype=question.numbers)  # half-precision inputs, full-precision sums
    return torch.bmm(rows.to(question.numbers), columns.to(question.numbers))


def _grouped(tensor: Tensor, repeats: int) -> Tensor:
    """(b, g*R, t, n) -> (b, g, R*t, n): heads that share keys are rows of one product."""
    b, h, t, n = tensor.shape
    return tensor.reshape(b, h // max(repeats, 1), repeats * t, n)


def _hide(scores: Tensor, mask: Mask, tile: Tile, hidden: Tensor | None) -> Tensor | None:
    """Write -inf where nobody may look, touching only columns that are not clear anyway."""
    clear = mask.clear(tile)
    if hidden is None and clear:
        for part in (range(tile.columns.start, clear.start), range(clear.stop, tile.columns.stop)):
            if part:
                seen = mask.on(replace(tile, columns=part))
                scores.narrow(-1, part.start - tile.columns.start, len(part)).masked_fill_(~seen, -torch.inf)
        return None
    unseen = ~mask.on(tile)
    hidden = unseen if hidden is None else hidden | unseen
    scores.masked_fill_(hidden, -torch.inf)
    return hidden
