"""Which way a CPU is at its best with. The figures behind it: docs/benchmarks."""

import math

import torch
from torch import Tensor
from torch._C._functorch import maybe_current_level
from torch.nn.functional import scaled_dot_product_attention

from softlook.base.tracing import can_read
from softlook.ops.dropping import dropped
from softlook.ops.question import learns

HALF = (torch.float16, torch.bfloat16)
FEW = 32
"""Up to so many queries the fused kernel is slower than the three steps it is made of."""
NARROW = 16
"""Rows of scores shorter than this torch's softmax takes number by number; of columns it takes many at once."""
MANY = 1 << 12
"""Scores from which on turning them over and back is the smaller part."""
SHORT = 128
"""Up to so many queries and keys it is, once its backward pass is counted."""


def attend_fused(
    query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, *, dropout: float, causal: bool, scale: float
) -> Tensor | None:
    """torch's fused attention, asked directly: so it tells the log-sum-exp too. None where it would hide a NaN.

    It takes a query all of whose scores are NaN for one that sees nothing: zeros come out, and a log-sum-exp of 0.
    `allowed` is added to the scores.
    """
    kind = value.dtype
    query, key, value, allowed = _cast(query, key, value, allowed)
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    output, lse = flash(query, key, value, dropout, causal, attn_mask=allowed, scale=scale)
    if bool((lse == 0).any()):
        return None if math.isnan((query.sum() + key.sum()).item()) else output.to(kind)
    return output.to(kind)


def attend_plainly(
    query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, *, dropout: float, causal: bool, scale: float
) -> Tensor:
    """torch's attention where its fused kernel cannot be asked; `allowed` is added to the scores."""
    kind, grouped = value.dtype, query.shape[1] != key.shape[1]
    query, key, value, allowed = _cast(query, key, value, allowed)
    attend = scaled_dot_product_attention
    return attend(query, key, value, allowed, dropout, causal, scale=scale, enable_gqa=grouped).to(kind)


def _cast(
    query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    whole = allowed is not None and allowed.dtype not in HALF  # a bias, which half precision would round
    wanted = works_in(value.dtype, whole or learns(query, key, value))
    return query.to(wanted), key.to(wanted), value.to(wanted), None if allowed is None else allowed.to(wanted)


def in_three(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Is starting the fused kernel, or going back through it, more work than three plain steps?"""
    if torch.compiler.is_exporting():
        return False  # the choice would fix the length, which is a symbol
    if maybe_current_level() is not None:
        return True  # the fused kernel has no rule for vmap, which would call it once for each row
    T, S = query.shape[2], key.shape[2]
    short = max(T, S) <= SHORT if learns(query, key, value) else T <= FEW
    return short and query.dtype not in HALF  # three steps would round half-precision scores


def works_in(dtype: torch.dtype, single: bool) -> torch.dtype:
    """Half precision goes through single where it has to come back (several times faster, more exact) or has a bias."""
    return torch.float32 if dtype in HALF and single else dtype


def attend_in_three(
    query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, *, dropout: float, scale: float
) -> Tensor:
    """Scores, softmax, average: three steps, each torch's own."""
    (B, H, T, D), (_, G, S, E), dtype = query.shape, value.shape, value.dtype
    if dtype in HALF:
        query, key, value = query.float(), key.float(), value.float()
    rows = query.reshape(B * G, H // G * T, D)
    scores = torch.baddbmm(rows.new_empty(()), rows, key.reshape(B * G, S, D).mT, beta=0, alpha=scale)
    scores = scores.view(B, H, T, S)
    weights = _softmax(scores if allowed is None else scores + allowed)
    weights = dropped(weights, dropout).reshape(B * G, H // G * T, S)
    return torch.bmm(weights, value.reshape(B * G, S, E)).view(B, H, T, E).to(dtype)


def _softmax(scores: Tensor) -> Tensor:
    """Over the last axis. Many short rows are turned into columns for it: so it takes a fifth of the time."""
    S = scores.shape[-1]
    if S >= NARROW or scores.numel() < MANY or not can_read(scores):
        return scores.softmax(-1)
    return scores.reshape(-1, S).t().contiguous().softmax(0).t().contiguous().view_as(scores)
