"""CUDA kernel selection of the SDPA backend. Measurements: docs/benchmarks."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from softlook.ops.arguments import HALF_DTYPES, needs_grad

EFFICIENT_MAX_KEYS = 64
"""Up to this many keys the memory-efficient kernel is the fastest."""
CUDNN_MULTIPLE, CUDNN_KEY_MULTIPLE = 64, 512
"""cuDNN builds an execution plan for every new length, which is slow: it is used for multiples of these lengths only.
Decoding with a growing KV cache has a new length at every step, so its keys need the larger multiple."""


def sdpa_attention_cuda(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, *, dropout: float, causal: bool, scale: float
) -> Tensor:
    """Run the fastest of torch's fused kernels; `attn_mask` is added to the scores."""
    run = bind_fused_cuda(query, key, value, attn_mask, dropout=dropout, causal=causal, scale=scale)
    return run(query, key, value)


def bind_fused_cuda(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, *, dropout: float, causal: bool, scale: float
) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """The fastest of torch's fused kernels for tensors like these."""
    aten = torch.ops.aten
    learning = needs_grad(query, key, value)
    grouped = query.shape[1] != key.shape[1]
    if causal and query.shape[2] != key.shape[2]:  # has_bottom_right_causal ensures that this is right
        flash = aten._scaled_dot_product_flash_attention
        return lambda query, key, value: flash(query, key, value, dropout, causal, scale=scale)[0]
    if suits_cudnn(query, key, value, attn_mask):
        cudnn = aten._scaled_dot_product_cudnn_attention
        return lambda query, key, value: cudnn(query, key, value, attn_mask, learning, dropout, causal, scale=scale)[0]
    if suits_efficient(query, key, attn_mask) and not grouped:
        efficient = aten._scaled_dot_product_efficient_attention
        return lambda query, key, value: efficient(query, key, value, None, learning, dropout, causal, scale=scale)[0]
    return partial(
        scaled_dot_product_attention,
        attn_mask=attn_mask,
        dropout_p=dropout,
        is_causal=causal,
        scale=scale,
        enable_gqa=grouped,
    )


def has_bottom_right_causal(query: Tensor, key: Tensor) -> bool:
    """Return whether the flash kernel applies: its causal mask aligns the last query with the last key."""
    return (
        query.is_cuda
        and query.dtype in HALF_DTYPES
        and query.shape[1] == key.shape[1]
        and query.shape[3] % 8 == 0
        and query.shape[3] <= 256
        and query.stride(3) == key.stride(3) == 1
        and torch.cuda.get_device_properties(query.device).major >= 8
        and torch.backends.cuda.flash_sdp_enabled()
    )


def suits_cudnn(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None) -> bool:
    """Return whether cuDNN is the fastest: on Hopper and Blackwell, at lengths worth an execution plan."""
    (_, _, T, D), S = query.shape, key.shape[2]
    multiple = CUDNN_MULTIPLE
    even = T % multiple == 0 and S % multiple == 0 if multiple <= T else S % CUDNN_KEY_MULTIPLE == 0
    return (
        even
        and S > EFFICIENT_MAX_KEYS
        and D % 8 == 0
        and D <= 128
        and query.dtype in HALF_DTYPES
        and all(tensor.stride(3) == 1 for tensor in (query, key, value))
        and (attn_mask is None or not attn_mask.requires_grad)
        and prefers_cudnn(query.device)
        and not torch.are_deterministic_algorithms_enabled()
    )


def prefers_cudnn(device: torch.device) -> bool:
    """Return whether cuDNN is the fastest on this device, and not switched off."""
    is_fastest = torch.cuda.get_device_properties(device).major in (9, 10)
    return is_fastest and torch.backends.cuda.cudnn_sdp_enabled()


# A compiler can read neither the device nor the switch. `torch.compiler.assume_constant_result` sets the same mark, but
# imports the compiler.
prefers_cudnn._dynamo_marked_constant = True  # pyright: ignore[reportFunctionMemberAccess]


def suits_efficient(query: Tensor, key: Tensor, attn_mask: Tensor | None) -> bool:
    """Return whether the memory-efficient kernel is the fastest: inputs so short that reading them dominates."""
    half, short = query.dtype in HALF_DTYPES, key.shape[2] <= EFFICIENT_MAX_KEYS
    fits = half and attn_mask is None and short and query.shape[3] % 8 == 0 and query.stride(3) == 1
    # A compiler cannot read the switch of torch.backends.cuda: there the choice is left to torch.
    return fits and not torch.compiler.is_compiling() and torch.backends.cuda.mem_efficient_sdp_enabled()
