"""Which way a CPU is at its best with. The figures behind it: docs/benchmarks."""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

HALF = (torch.float16, torch.bfloat16)
FEW = 32
"""Up to so many queries the fused kernel, without a gradient, is slower than the three steps it is made of."""


def attend(
    query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, *, dropout: float, causal: bool, scale: float
) -> Tensor:
    """torch's fused attention; `allowed` is added to the scores."""
    kind = value.dtype
    query, key, value = (tensor.to(works_in(kind, query.shape[2])) for tensor in (query, key, value))
    grouped = query.shape[1] != key.shape[1]
    fused = scaled_dot_product_attention
    return fused(query, key, value, allowed, dropout, causal, scale=scale, enable_gqa=grouped).to(kind)


def is_short(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Are there so few queries that starting the fused kernel is much of the work?"""
    learns = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (query, key, value))
    return 1 < query.shape[2] <= FEW and not learns and query.dtype not in HALF


def works_in(dtype: torch.dtype, queries: int) -> torch.dtype:
    """Half precision goes through single: no slower, backwards several times faster, and more exact.

    For a few queries it does not pay to turn all the keys.
    """
    return torch.float32 if dtype in HALF and queries > FEW else dtype


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
