"""SDPA backend: torch's fused attention kernels, selected by shape and device."""

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from softlook.base.tensors import can_read
from softlook.ops.arguments import AttentionArgs
from softlook.ops.backends import flash, sdpa_cpu, sdpa_cuda, short, tiled, varlen
from softlook.ops.backends.tiled import additive_mask, rows_with_keys
from softlook.ops.masks.cache import cached
from softlook.ops.masks.masks import CAUSAL, WindowMask

MAX_CACHED_ELEMENTS = 1 << 24
"""Larger masks are not kept between calls."""


Kernel = Literal[
    "reference", "tiled", "flex", "math", "fused", "unfused", "varlen", "flash_varlen", "flash_window", "short"
]
"""What computes attention:

- reference: the whole map in plain torch.
- tiled: plain torch, tile by tile.
- flex: compiled FlexAttention.
- math: matrix product, softmax, matrix product (CPU, short inputs).
- fused: a fused kernel: CPU flash attention; on CUDA cuDNN, flash or memory-efficient attention.
- unfused: `scaled_dot_product_attention` where it has no fused kernel.
- varlen: one SDPA call per packed document (CPU).
- flash_varlen: one call of the flash kernel for all packed documents (CUDA).
- flash_window: the flash kernel with its own window (CUDA).
- short: our kernel for many short sequences (CUDA).
"""


def select_kernel(args: AttentionArgs, value: Tensor, dropout: float) -> tuple[Kernel, bool]:
    """Select torch's kernel, and whether it needs no mask tensor."""
    query, mask = args.query, args.mask
    if mask is not None and varlen.document_lengths(args) is not None:
        return "varlen", True
    if mask is not None and query.is_cuda and flash.document_runs(args, value) is not None:
        return "flash_varlen", True
    if short.has_short_kernel(args, value):
        return "short", True
    if not query.is_cuda and sdpa_cpu.prefers_math(query, args.key, value):
        return "math", mask is None and args.bias is None
    fused = query.dtype != torch.float64 if query.is_cuda else _is_fused_on_cpu(args, value, dropout)
    return "fused" if fused else "unfused", has_native_mask(args)


def sdpa_attention(kernel: Kernel, native_mask: bool, args: AttentionArgs, value: Tensor, dropout: float) -> Tensor:
    """Run attention through the selected kernel. (B, H, T, E)"""
    if kernel == "varlen":
        return varlen.varlen_attention(
            args, value, lambda part, v: sdpa_attention(*select_kernel(part, v, dropout), part, v, dropout)
        )
    if kernel == "flash_varlen":
        return flash.bind_flash_varlen(args, value, dropout)(args.query, args.key, value)
    if kernel == "short":
        return short.short_attention(args.query, args.key, value, args.scale, dropout)
    if kernel == "flash_window":
        return flash.bind_flash_window(args, dropout)(args.query, args.key, value)
    query, key, scale = args.query, args.key, args.scale
    attn_mask, visible_rows = (None, None) if native_mask else materialize_mask(args)
    if scale <= 0:  # the kernels subtract the largest product before they scale it
        query, scale = query * scale, 1.0
    if kernel == "math":
        output = sdpa_cpu.math_attention(
            query, key, value, attn_mask, dropout=dropout, scale=scale, is_mask=args.bias is None
        )
        return output if visible_rows is None else output.masked_fill(~visible_rows, 0)
    D, E = query.shape[3], value.shape[3]
    padded_value = value
    if D != E:  # zero padding changes no dot product, and equal dimensions keep the fused kernels available
        query, key, padded_value = (pad(tensor, (0, max(D, E) - tensor.shape[3])) for tensor in (query, key, value))
    if query.is_cuda:
        run = sdpa_cuda.sdpa_attention_cuda
    else:
        run = sdpa_cpu.flash_attention_cpu if kernel == "fused" else sdpa_cpu.torch_attention_cpu
    causal = native_mask and args.mask is not None
    output = run(query, key, padded_value, attn_mask, dropout=dropout, causal=causal, scale=scale)
    if output is None:
        return tiled.tiled_attention(args, value, dropout)
    output = output if D <= E else output[..., :E]
    return output if visible_rows is None else output.masked_fill(~visible_rows, 0)


def bind_kernel(
    kernel: Kernel, native_mask: bool, args: AttentionArgs, value: Tensor, dropout: float
) -> Callable[[Tensor, Tensor, Tensor], Tensor] | None:
    """`sdpa_attention` for any tensors with the sizes, strides and dtypes of these; None where that is not faster."""
    query, key, scale, D = args.query, args.key, args.scale, args.query.shape[3]
    if kernel == "flash_varlen":
        return flash.bind_flash_varlen(args, value, dropout)
    if kernel == "flash_window":
        return flash.bind_flash_window(args, dropout)
    if kernel == "short":
        return partial(short.short_attention, scale=args.scale, dropout=dropout)
    is_plain = args.bias is args.softcap is args.sink is args.score is None and scale > 0 and value.shape[3] == D
    if not is_plain or args.first_key or kernel not in ("math", "fused"):
        return None
    attn_mask, visible_rows = (None, None) if native_mask else materialize_mask(args)
    if kernel == "math":
        run = sdpa_cpu.bind_math(query, key, value, attn_mask, dropout=dropout, scale=scale)
    elif query.is_cuda:
        causal = native_mask and args.mask is not None
        run = sdpa_cuda.bind_fused_cuda(query, key, value, attn_mask, dropout=dropout, causal=causal, scale=scale)
    else:
        return None  # beyond the sizes where `math` is faster, the kernel takes longer than its selection
    if visible_rows is None:
        return run
    hidden = ~visible_rows
    return lambda query, key, value: run(query, key, value).masked_fill(hidden, 0)


def unsupported_reason(args: AttentionArgs) -> str | None:
    """Return what torch's kernels do not support among these arguments, or None."""
    if args.score is not None:
        return "torch's kernels support dot-product scores only"
    if args.softcap is not None:
        return "torch's kernels have no softcap"
    if args.sink is not None:
        return "torch's kernels have no attention sink"
    if args.bias is not None and args.bias.has_relative_values:
        return "torch's kernels have no relative values"
    if args.bias is not None and not args.bias.is_additive:
        return "torch's kernels have no score functions"
    return None


def has_native_mask(args: AttentionArgs) -> bool:
    """Return whether a kernel needs no mask tensor: no mask, or its own causal one."""
    if args.bias is not None:
        return False
    if args.mask is None:
        return True
    if args.mask is not CAUSAL and args.mask != CAUSAL:
        return False
    _, _, T, S = args.sizes
    # Most kernels align the first query with the first key, which is right only for T = S.
    return T == S or (1 < T < S and sdpa_cuda.has_bottom_right_causal(args.query, args.key))


def _is_fused_on_cpu(args: AttentionArgs, value: Tensor, dropout: float) -> bool:
    """torch's fused CPU kernel has no dropout and no gradient for a mask, and needs a contiguous last dimension.

    A tracer cannot read torch's switch for it: there the choice is left to torch.
    """
    tensors = (args.query, args.key, value)
    if not can_read(*tensors):
        return False
    contiguous = args.query.shape[3] != value.shape[3] or all(tensor.stride(3) == 1 for tensor in tensors)
    bias = args.bias
    learned = bias is not None and (bias.requires_grad or bias.depends_on_content) and args.requires_grad_with(value)
    return contiguous and not dropout and not learned and torch.backends.cuda.flash_sdp_enabled()


def materialize_mask(args: AttentionArgs) -> tuple[Tensor | None, Tensor | None]:
    """Return mask and bias as one additive tensor, and which rows see any key (None: all do).

    A fully masked row gets a mask of zeros and its output is set to zero afterwards, so that no kernel divides zero by
    zero, forward or backward.
    """
    mask, bias, T = args.mask, args.bias, args.sizes[2]
    if bias is None:
        return _materialize_mask_only(args)
    tile = args.tile
    values = bias.tile(args.query, args.key, args.scale, tile)
    if not bias.may_mask:
        attn_mask, visible_rows = (None, None) if mask is None else _materialize_mask_only(args)
    else:
        visible = ~values.isneginf() if mask is None else ~values.isneginf() & mask.tile(tile)
        values = values.masked_fill(~visible, 0)
        attn_mask, visible_rows = _additive_mask_and_rows(visible, args, every_row_visible=False)
    # CUDA kernels need the bias in the query's dtype; CPU kernels compute in that of the bias.
    values = values.to(args.query.dtype if args.query.is_cuda else args.compute_dtype)
    return (values if attn_mask is None else values + attn_mask).expand(-1, -1, T, -1), visible_rows


def _materialize_mask_only(args: AttentionArgs) -> tuple[Tensor, Tensor | None]:
    mask, sizes = args.mask, args.sizes
    assert mask is not None

    def build() -> tuple[Tensor, Tensor | None]:
        return _additive_mask_and_rows(mask.tile(args.tile), args, mask.every_row_visible(*sizes[2:]))

    B, _, T, S = sizes
    if torch.compiler.is_compiling() or B * T * S > MAX_CACHED_ELEMENTS:
        return build()
    key = (T, S) if isinstance(mask, WindowMask) else sizes
    return cached(mask, "additive", (key, args.query.device, args.query.dtype), build, like=args.query)


def _additive_mask_and_rows(
    visible: Tensor, args: AttentionArgs, every_row_visible: bool
) -> tuple[Tensor, Tensor | None]:
    rows = None if every_row_visible else rows_with_keys(visible)
    attn_mask = additive_mask(visible if rows is None else visible | ~rows, args.query.dtype)
    return attn_mask.expand(-1, -1, args.sizes[2], -1), rows
