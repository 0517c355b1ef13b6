"""What comes first, read at once by the plan that goes on from it: keys and values of all of it, and one answer."""

import torch
from torch import Tensor
from torch.nn import functional as F

from softlook.decode.captured.parts import Plain
from softlook.decode.captured.plan import Layer, Looking, Plan
from softlook.ops import gpu
from softlook.ops.positions.rotary import Phases, rotary
from softlook.ops.tilework import darkness

PARTS = Plain()


def read(plan: Plan, ids: Tensor, filled: Tensor | None) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
    """Rows (N, T), of which the first `filled` (N,) places stand for nothing -> scores (N, V), and keys and values."""
    N, T = ids.shape
    places, mask = torch.arange(T, device=ids.device), None
    if filled is not None:
        # Places that stand for nothing see themselves: who sees nothing at all becomes no number, and spreads.
        seen = (places >= filled[:, None])[:, None] & (places <= places[:, None])
        seen |= torch.eye(T, dtype=torch.bool, device=ids.device)
        mask = darkness(seen[:, None], plan.tokens.dtype)
        places = (places - filled[:, None]).clamp(min=0)
    x, table, turns = plan.tokens[ids], plan.places(T), plan.turns(T)
    x = x if plan.factor == 1.0 else x * plan.factor
    x = x if table is None else x + table[places]
    x = x if plan.first_norm is None else PARTS.norm(x, plan.first_norm)
    phases = None if turns is None else Phases(turns[0][places], turns[1][places])
    kept = []
    for layer in plan.layers:
        x, both = _layer(x, layer, phases, mask)
        kept.append(both)
    return PARTS.sum(x[:, -1], plan.head, norm=plan.last_norm), kept


def _layer(x: Tensor, layer: Layer, phases: Phases | None, mask: Tensor | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    before, feed = layer.before, layer.feed
    heads = PARTS.sum(x, layer.attend.into, norm=layer.attend_norm if before else None)
    looked, both = _looked(heads, layer.attend, phases, mask)
    x = PARTS.sum(looked, layer.attend.out, residual=x)
    x = x if before else PARTS.norm(x, layer.attend_norm)
    norm = layer.feed_norm if before else None
    hidden = PARTS.sum(x, feed.into, norm=norm, bend=feed.bend, gated=feed.gated)
    x = PARTS.sum(hidden, feed.out, residual=x)
    return x if before else PARTS.norm(x, layer.feed_norm), both


def _looked(
    heads: Tensor, look: Looking, phases: Phases | None, mask: Tensor | None
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    split = heads.unflatten(-1, (-1, look.width)).transpose(1, 2)
    query, key, value = split.split((look.heads, look.kv_heads, look.kv_heads), 1)
    if phases is not None:
        query, key = rotary(query, phases), rotary(key, phases)
    causal = mask is None
    if query.is_cuda:
        mixed = gpu.attend(query, key, value, mask, dropout=0.0, causal=causal, scale=look.scale)
    else:
        grouped = look.heads != look.kv_heads
        mixed = F.scaled_dot_product_attention(
            query, key, value, mask, is_causal=causal, scale=look.scale, enable_gqa=grouped
        )
    return mixed.transpose(1, 2).flatten(-2), (key, value)
