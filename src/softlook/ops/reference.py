"""The operation written down once, plainly, with the whole map in hand. Every other path is held equal to it."""

from typing import Literal

import torch
from torch import Tensor

from softlook.ops.question import Question

Stage = Literal["raw", "capped", "biased", "softmaxed"]


def score_map(question: Question, stage: Stage) -> Tensor:
    """The map after scaling, after the soft cap, after bias and mask, or after the softmax. (B, H, T, S)"""
    query, key = question.query, question.key.repeat_interleave(question.repeats, dim=1)
    compare = question.score or _dot
    scores = compare(query, key).to(question.numbers) * question.scale
    if stage == "raw":
        return scores
    if question.softcap is not None:
        scores = question.softcap * (scores / question.softcap).tanh()
    if stage == "capped":
        return scores
    seen = torch.ones_like(scores, dtype=torch.bool)
    if question.bias is not None:
        bias = question.bias.on(question.query, question.key, question.scale, question.tile).to(scores.dtype)
        scores, seen = scores + bias, seen & ~bias.isneginf()
    if question.mask is not None:
        seen = seen & question.mask.on(question.tile)
    scores = scores.masked_fill(~seen, -torch.inf)
    return scores if stage == "biased" else _softmax(scores, seen, question.sink)


def attend(question: Question, value: Tensor, dropout: float) -> Tensor:
    """Each query's average of the values, weighted by the map. (B, H, T, E)"""
    weights = torch.nn.functional.dropout(score_map(question, "softmaxed"), dropout)
    values = value.to(question.numbers).repeat_interleave(question.repeats, dim=1)
    output = weights @ values
    added = None if question.bias is None else question.bias.added_value(weights, question.tile)
    return (output if added is None else output + added).to(value.dtype)


def _softmax(scores: Tensor, seen: Tensor, sink: Tensor | None) -> Tensor:
    """Rows sum to one, or to zero where nothing is seen; a sink takes its share and is left out of the map."""
    if sink is None:
        # Chosen by the mask, not by the number: a query that may look nowhere gets zeros, a real NaN stays in sight.
        return scores.softmax(-1).masked_fill(~seen, 0) if scores.shape[-1] else scores
    with_sink = torch.cat([scores, sink[:, None, None].expand(*scores.shape[:3], 1)], -1)
    return with_sink.softmax(-1)[..., :-1]


def _dot(query: Tensor, key: Tensor) -> Tensor:
    """In single precision at least: what half precision rounds off, the softmax would make much of."""
    if query.dtype != torch.float64:
        query, key = query.float(), key.float()
    return query @ key.mT
