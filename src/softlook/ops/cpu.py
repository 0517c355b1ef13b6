"""Which way a CPU is at its best with. The figures behind it: docs/benchmarks."""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

HALF = (torch.float16, torch.bfloat16)
FEW = 32
"""Up to so many queries the fused kernel is slower than the three steps it is made of."""
SHORT = 128
"""Up to so many queries and keys it is, once its backward pass is counted."""


def attend(
    query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, *, dropout: float, causal: bool, scale: float
) -> Tensor:
    """torch's fused attention; `allowed` is added to the scores."""
    kind, wanted = value.dtype, works_in(value.dtype, learns(query, key, value))
    query, key, value = query.to(wanted), key.to(wanted), value.to(wanted)
    allowed = None if allowed is None else allowed.to(wanted)
    grouped = query.shape[1] != key.shape[1]
    fused = scaled_dot_product_attention
    return fused(query, key, value, allowed, dropout, causal, scale=scale, enable_gqa=grouped).to(kind)


def in_three(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Is starting the fused kernel, or going back through it, more work than three plain steps?"""
    T, S = query.shape[2], key.shape[2]
    short = max(T, S) <= SHORT if learns(query, key, value) else T <= FEW
    return short and query.dtype not in HALF  # three steps would round half-precision scores


def works_in(dtype: torch.dtype, learning: bool) -> torch.dtype:
    """Half precision goes through single where it has to come back: that is several times faster, and more exact."""
    return torch.float32 if dtype in HALF and learning else dtype


def learns(*tensors: Tensor) -> bool:
    """Must a gradient flow back to any of them?"""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def attend_in_three(
    query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, *, dropout: float, scale: float
) -> Tensor:
    """Scores, softmax, average: three steps, each torch's own."""
    (B, H, T, D), (_, G, S, E) = query.shape, value.shape
    rows = query.reshape(B * G, H // G * T, D)
    scores = torch.baddbmm(rows.new_empty(()), rows, key.reshape(B * G, S, D).mT, beta=0, alpha=scale)
    scores = scores.view(B, H, T, S)
    weights = (scores if allowed is None else scores + allowed).softmax(-1)
    weights = torch.nn.functional.dropout(weights, dropout).reshape(B * G, H // G * T, S)
    return torch.bmm(weights, value.reshape(B * G, S, E)).view(B, H, T, E)
