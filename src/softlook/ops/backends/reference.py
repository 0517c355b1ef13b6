"""Reference backend: the definition of attention, with the whole map."""

from typing import Literal

import torch
from torch import Tensor

from softlook.ops.arguments import AttentionArgs

Stage = Literal["scaled", "softcapped", "masked", "weights"]


def attention_map(args: AttentionArgs, stage: Stage) -> Tensor:
    """Return the map after the scale, after the softcap, after bias and mask, or after the softmax. (B, H, T, S)"""
    query, key = args.query, args.key.repeat_interleave(args.group_size, dim=1)
    score = args.score or _dot
    scores = score(query, key).to(args.compute_dtype) * args.scale
    if stage == "scaled":
        return scores
    if args.softcap is not None:
        scores = args.softcap * (scores / args.softcap).tanh()
    if stage == "softcapped":
        return scores
    visible = torch.ones_like(scores, dtype=torch.bool)
    if args.bias is not None and args.bias.is_additive:
        bias = args.bias.tile(args.query, args.key, args.scale, args.tile).to(scores.dtype)
        scores, visible = scores + bias, visible & ~bias.isneginf()
    elif args.bias is not None:
        scores = args.bias.apply(scores, args.query, args.key, args.scale, args.tile)
        visible = ~scores.isneginf()
    if args.mask is not None:
        visible = visible & args.mask.tile(args.tile)
    scores = scores.masked_fill(~visible, -torch.inf)
    return scores if stage == "masked" else _softmax(scores, visible, args.sink)


def reference_attention(args: AttentionArgs, value: Tensor, dropout: float) -> Tensor:
    """Average the values, weighted by the map. (B, H, T, E)"""
    weights = torch.nn.functional.dropout(attention_map(args, "weights"), dropout)
    values = value.to(args.compute_dtype).repeat_interleave(args.group_size, dim=1)
    output = weights @ values
    added = None if args.bias is None else args.bias.relative_values(weights, args.tile)
    return (output if added is None else output + added).to(value.dtype)


def reference_lse(args: AttentionArgs) -> Tensor:
    """Return the log-sum-exp of each row, with the sink. (B, H, T)"""
    lse = attention_map(args, "masked").logsumexp(-1)
    return lse if args.sink is None else torch.logaddexp(lse, args.sink[:, None])


def _softmax(scores: Tensor, visible: Tensor, sink: Tensor | None) -> Tensor:
    """Softmax whose fully masked rows are zero; a sink takes its share and is not part of the map."""
    if sink is None:
        # Selected by the mask, not by the value: a fully masked row becomes zeros, a real NaN stays.
        return scores.softmax(-1).masked_fill(~visible, 0) if scores.shape[-1] else scores
    with_sink = torch.cat([scores, sink[:, None, None].expand(*scores.shape[:3], 1)], -1)
    return with_sink.softmax(-1)[..., :-1]


def _dot(query: Tensor, key: Tensor) -> Tensor:
    """Dot products in at least float32: the softmax amplifies rounding errors."""
    if query.dtype != torch.float64:
        query, key = query.float(), key.float()
    return query @ key.mT
