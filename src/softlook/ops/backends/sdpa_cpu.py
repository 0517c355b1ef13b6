"""CPU kernels of the SDPA backend. Measurements: docs/benchmarks."""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch._C._functorch import maybe_current_level
from torch.nn.functional import scaled_dot_product_attention

from softlook.base.tensors import can_read
from softlook.ops.arguments import HALF_DTYPES, needs_grad
from softlook.ops.dropout import dropout as apply_dropout

MATH_MAX_QUERIES = 32
"""Up to this many queries the fused kernel is slower than the three operations it consists of."""
MATH_MAX_LENGTH_WITH_GRAD = 128
"""The same for queries and keys, with the backward pass."""
VECTOR_WIDTH = 16
"""torch's softmax is scalar over rows shorter than this; over columns it is vectorized."""
UNUSED = {dtype: torch.empty((), dtype=dtype) for dtype in (torch.float32, torch.float64)}
"""The first argument of `baddbmm`, which beta=0 ignores."""
TRANSPOSE_MIN_SCORES = 1 << 12
"""From this many scores on, transposing them for the softmax pays off."""


def flash_attention_cpu(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, *, dropout: float, causal: bool, scale: float
) -> Tensor | None:
    """Run torch's fused CPU kernel directly, for its log-sum-exp; None where it would hide a NaN.

    The kernel treats a query whose scores are all NaN as fully masked: output 0, log-sum-exp 0.
    """
    dtype = value.dtype
    query, key, value, attn_mask = _cast(query, key, value, attn_mask)
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    output, lse = flash(query, key, value, dropout, causal, attn_mask=attn_mask, scale=scale)
    if bool((lse == 0).any()):
        return None if math.isnan((query.sum() + key.sum()).item()) else output.to(dtype)
    return output.to(dtype)


def torch_attention_cpu(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, *, dropout: float, causal: bool, scale: float
) -> Tensor:
    """Run `scaled_dot_product_attention` where the fused kernel does not apply."""
    dtype, grouped = value.dtype, query.shape[1] != key.shape[1]
    query, key, value, attn_mask = _cast(query, key, value, attn_mask)
    run = scaled_dot_product_attention
    return run(query, key, value, attn_mask, dropout, causal, scale=scale, enable_gqa=grouped).to(dtype)


def _cast(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    has_float_bias = attn_mask is not None and attn_mask.dtype not in HALF_DTYPES  # half precision would round it
    dtype = kernel_dtype(value.dtype, single=has_float_bias or needs_grad(query, key, value))
    return query.to(dtype), key.to(dtype), value.to(dtype), None if attn_mask is None else attn_mask.to(dtype)


def prefers_math(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Return whether three plain operations are faster than the fused kernel, forward and backward."""
    if torch.compiler.is_exporting():
        return False  # the choice would fix the length, which is a symbol
    if maybe_current_level() is not None:
        return True  # the fused kernel has no vmap rule and would be called once per row
    if query.dtype in HALF_DTYPES:
        return False  # half-precision scores would be rounded
    T = query.shape[2]
    if needs_grad(query, key, value):
        return max(T, key.shape[2]) <= MATH_MAX_LENGTH_WITH_GRAD
    return T <= MATH_MAX_QUERIES


def kernel_dtype(dtype: torch.dtype, single: bool) -> torch.dtype:
    """Return float32 for half precision with a gradient (several times faster, more exact) or with a float32 bias."""
    return torch.float32 if dtype in HALF_DTYPES and single else dtype


def math_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    *,
    dropout: float,
    scale: float,
    is_mask: bool = False,
) -> Tensor:
    """Scores, softmax, average as three torch operations. `is_mask`: `attn_mask` holds 0 and -inf only."""
    (B, H, T, D), (_, G, S, E), dtype = query.shape, value.shape, value.dtype
    if dtype in HALF_DTYPES:
        query, key, value = query.float(), key.float(), value.float()
    rows, columns = query.reshape(B * G, H // G * T, D), key.reshape(B * G, S, D).mT
    is_plain = type(query) is Tensor and maybe_current_level() is None and not torch.compiler.is_compiling()
    if attn_mask is not None and is_mask and is_plain and H == G and attn_mask.shape[:2] == (1, 1):
        scores = torch.baddbmm(attn_mask[0], rows, columns, alpha=scale)  # exact: the mask holds 0 and -inf only
    else:
        unused = UNUSED[query.dtype] if is_plain and query.is_cpu else rows.new_empty(())
        scores = torch.baddbmm(unused, rows, columns, beta=0, alpha=scale)
        if attn_mask is not None:
            scores = (scores.view(B, H, T, S) + attn_mask).reshape(B * G, H // G * T, S)
    weights = scores.softmax(-1) if S >= VECTOR_WIDTH else _short_softmax(scores)
    if dropout:
        weights = apply_dropout(weights.view(B, H, T, S), dropout).reshape(B * G, H // G * T, S)
    output = torch.bmm(weights, value.reshape(B * G, S, E)).view(B, H, T, E)
    return output.to(dtype) if dtype in HALF_DTYPES else output


def bind_math(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, *, dropout: float, scale: float
) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """`math_attention` of plain tensors with the sizes, strides and dtypes of these; `attn_mask` holds 0 and -inf."""
    (B, H, T, D), (_, G, S, E) = query.shape, value.shape
    adds_mask = attn_mask is None or (H == G and attn_mask.shape[:2] == (1, 1))
    if dropout or query.dtype not in UNUSED or S < VECTOR_WIDTH or not adds_mask:
        return partial(math_attention, attn_mask=attn_mask, dropout=dropout, scale=scale, is_mask=True)
    added, beta = (UNUSED[query.dtype], 0) if attn_mask is None else (attn_mask[0], 1)
    rows, columns, values, shape = (B * G, H // G * T, D), (B * G, S, D), (B * G, S, E), (B, H, T, E)
    is_contiguous = query.is_contiguous() and key.is_contiguous() and value.is_contiguous()
    flatten = Tensor.view if is_contiguous else Tensor.reshape

    def run(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        scores = torch.baddbmm(added, flatten(query, rows), flatten(key, columns).mT, beta=beta, alpha=scale)
        return torch.bmm(scores.softmax(-1), flatten(value, values)).view(shape)

    return run


def _short_softmax(scores: Tensor) -> Tensor:
    """Softmax over short rows. Many of them are transposed for it, which takes a fifth of the time."""
    if scores.numel() < TRANSPOSE_MIN_SCORES or not can_read(scores):
        return scores.softmax(-1)
    return scores.reshape(-1, scores.shape[-1]).t().contiguous().softmax(0).t().contiguous().view_as(scores)
