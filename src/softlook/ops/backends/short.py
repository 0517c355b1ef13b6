"""Attention between many short sequences on CUDA by one Triton kernel per pass, with dropout."""

from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from softlook.base.tensors import is_traced
from softlook.ops.arguments import HALF_DTYPES, AttentionArgs, needs_grad

MAX_LENGTH, MAX_HEAD_DIM = 64, 64
"""Larger maps do not fit into the memory of a multiprocessor in every dtype."""
MIN_MAPS = 512
"""Fewer maps than this leave most of a GPU idle: other kernels divide a map among several programs."""
Saved = tuple[Tensor, Tensor, Tensor, Tensor | None]
"""Queries, keys, values and the seed of dropout."""
DTYPES = (*HALF_DTYPES, torch.float32)


def has_short_kernel(args: AttentionArgs, value: Tensor) -> bool:
    """Return whether the kernel applies: no mask, no bias, one key head per query head, short sequences."""
    (B, H, T, S), query = args.sizes, args.query
    return (
        query.is_cuda
        and args.mask is None
        and args.bias is None
        and max(T, S) <= MAX_LENGTH
        and B * H >= MIN_MAPS
        and args.group_size == 1
        and query.dtype in DTYPES
        and query.shape[3] == value.shape[3] <= MAX_HEAD_DIM
        and not is_traced(query, args.key, value)
        and _has_triton()
    )


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


def short_attention(query: Tensor, key: Tensor, value: Tensor, scale: float, dropout: float) -> Tensor:
    """Attention of all heads, each map at once. (B, H, T, D)"""
    # A tensor on the device: a CUDA graph draws another seed in every replay.
    seed = torch.randint((1 << 31) - 1, (1,), device=query.device) if dropout else None
    if needs_grad(query, key, value):
        return _ShortAttention.apply(query, key, value, seed, scale, dropout)  # pyright: ignore[reportReturnType]
    return forward(query, key, value, seed, scale, dropout)


def forward(query: Tensor, key: Tensor, value: Tensor, seed: Tensor | None, scale: float, dropout: float) -> Tensor:
    """Run the forward kernel."""
    from softlook.ops.backends import short_kernels  # noqa: PLC0415  (importing Triton is slow)

    query, key, value = (_rows_contiguous(tensor) for tensor in (query, key, value))
    output = empty_like_heads(query)
    strides = [stride for tensor in (query, key, value, output) for stride in tensor.stride()[:3]]
    short_kernels.short_forward[query.shape[0] * query.shape[1],](
        query,
        key,
        value,
        output,
        seed,
        tuple(strides),
        _sizes(query, key),
        scale,
        dropout,
        **_options(query, key, seed),
    )
    return output


def backward(grad: Tensor, saved: Saved, scale: float, dropout: float) -> tuple[Tensor, Tensor, Tensor]:
    """Run the backward kernel."""
    from softlook.ops.backends import short_kernels  # noqa: PLC0415  (importing Triton is slow)

    query, key, value, seed = saved
    grad, query, key, value = (_rows_contiguous(tensor) for tensor in (grad, query, key, value))
    grads = (empty_like_heads(query), empty_like_heads(key), empty_like_heads(value))
    strides = [stride for tensor in (query, key, value, grad, *grads) for stride in tensor.stride()[:3]]
    short_kernels.short_backward[query.shape[0] * query.shape[1],](
        query,
        key,
        value,
        grad,
        *grads,
        seed,
        tuple(strides),
        _sizes(query, key),
        scale,
        dropout,
        **_options(query, key, seed),
    )
    return grads


def empty_like_heads(tensor: Tensor) -> Tensor:
    """Memory for such a tensor with the heads of a token side by side: merging them copies nothing."""
    B, H, T, D = tensor.shape
    return tensor.new_empty(B, T, H, D).transpose(1, 2)


def _rows_contiguous(tensor: Tensor) -> Tensor:
    return tensor if tensor.stride(3) == 1 else tensor.contiguous()


def _sizes(query: Tensor, key: Tensor) -> tuple[int, int, int]:
    return query.shape[1], query.shape[2], key.shape[2]


def _options(query: Tensor, key: Tensor, seed: Tensor | None) -> dict[str, Any]:
    T, S, D = (max(16, 1 << (size - 1).bit_length()) for size in (query.shape[2], key.shape[2], query.shape[3]))
    return {
        "D": query.shape[3],
        "BLOCK_D": D,
        "BLOCK_T": T,
        "BLOCK_S": S,
        "DROPS": seed is not None,
        "PRECISION": "tf32" if query.dtype in HALF_DTYPES else "tf32x3",
        "num_warps": 8 if T * S > 1 << 13 else 4 if T * S > 1 << 10 else 1,
    }


class _ShortAttention(torch.autograd.Function):
    """Both kernels as one differentiable function."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        query, key, value, seed, ctx.scale, ctx.dropout = inputs
        ctx.save_for_backward(query, key, value, seed)
        return forward(query, key, value, seed, ctx.scale, ctx.dropout)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return (*backward(grads[0], ctx.saved_tensors, ctx.scale, ctx.dropout), None, None, None)
