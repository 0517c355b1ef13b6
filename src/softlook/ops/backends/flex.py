"""FlexAttention backend: compiled softcap, sink, bias and sparse masks."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from softlook.base.shapes import Tile
from softlook.ops.arguments import AttentionArgs
from softlook.ops.bias import ScoreMod
from softlook.ops.masks.base import Mask
from softlook.ops.masks.cache import cached
from softlook.ops.masks.masks import WindowMask

BLOCK_SIZE = 128
"""Queries and keys per block of a block mask."""
MIN_HEAD_DIM = 16
SMALL_TILES = {"fwd_BLOCK_M": 64, "fwd_BLOCK_N": 64, "fwd_num_stages": 2, "bwd_num_stages": 1}
"""Kernel tiles that leave shared memory for a bias table. With the defaults a GPU may run out of it."""
RECOMPILE_LIMIT = 1024
"""Shapes that may be compiled before torch raises an error; with fullgraph=True it never runs unfused."""


def flex_attention(args: AttentionArgs, value: Tensor) -> Tensor:
    """Run compiled FlexAttention. (B, H, T, E)"""
    query, scale = args.query, args.scale
    if scale <= 0:  # the kernel subtracts the largest product before it scales it
        query, scale = query * scale, 1.0
    with _many_shapes():
        result = _compiled()(query, args.key, value, **_options(args, scale))
    if args.sink is None:
        return result
    output, lse = result
    share = (lse - args.sink[:, None]).sigmoid()
    return (output * share[..., None]).to(value.dtype)


def bind_flex(args: AttentionArgs) -> Callable[[Tensor, Tensor, Tensor], Tensor] | None:
    """FlexAttention for other tensors like these: its block mask is kept, and no setting is changed in a call."""
    if args.scale <= 0 or args.bias is not None or args.sink is not None:
        return None
    run = partial(_compiled(), **_options(args, args.scale))

    def run_compiled(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        try:
            return run(query, key, value)
        except torch._dynamo.exc.FailOnRecompileLimitHit:  # pyright: ignore[reportAttributeAccessIssue]
            with _many_shapes():  # what was compiled for these shapes has been dropped
                return run(query, key, value)

    return run_compiled


def _options(args: AttentionArgs, scale: float) -> dict[str, Any]:
    mask = args.mask
    options = {
        "score_mod": _score_mod(args),
        "block_mask": None if mask is None else _block_mask(mask, args.sizes, args.query.device),
        "scale": scale,
        "enable_gqa": args.group_size > 1,
        "kernel_options": SMALL_TILES if args.bias is not None and args.query.is_cuda else None,
    }
    return options | ({"return_lse": True} if args.sink is not None else {})


def _many_shapes() -> AbstractContextManager[Any]:
    """Lift torch's limit of shapes that are compiled: changing a setting takes longer than looking up a kernel."""
    limits: dict[str, Any] = {"recompile_limit": RECOMPILE_LIMIT, "accumulated_recompile_limit": RECOMPILE_LIMIT}
    return torch._dynamo.config.patch(**limits)


def unsupported_reason(args: AttentionArgs, value: Tensor, dropout: float) -> str | None:
    """Return what FlexAttention does not support among these arguments, or None."""
    if args.score is not None:
        return "it supports dot-product scores only"
    if dropout > 0:
        return "it has no dropout"
    if args.query.dtype == torch.float64:
        return "it has no float64"
    if args.bias is not None and args.bias.score_mod(*args.sizes[2:]) is None:
        return f"the bias {args.bias} depends on queries or keys"
    if args.mask is not None and not args.mask.can_compile:
        return f"the mask {args.mask} cannot be compiled into a kernel"
    if 0 in args.sizes or 0 in value.shape:
        return "a size is 0"
    return _device_reason(args, value)


def _device_reason(args: AttentionArgs, value: Tensor) -> str | None:
    device = args.query.device.type
    if device == "cpu" and args.requires_grad_with(value):
        return "on the CPU it has no gradient"
    if device == "cpu" and args.sink is not None:
        return "on the CPU it returns no log-sum-exp, which a sink needs"
    if device == "cuda" and min(args.query.shape[3], value.shape[3]) < MIN_HEAD_DIM:
        return f"on a GPU it needs a head dimension of at least {MIN_HEAD_DIM}"
    if device == "cuda" and find_spec("triton") is None:
        return "it needs Triton, which is not installed"
    return None if device in ("cpu", "cuda") else f"it does not run on {device}"


@cache
def _flex() -> Any:
    import torch.nn.attention.flex_attention as flex  # noqa: PLC0415  (loads the compiler: only this backend needs it)

    return flex


@cache
def _compiled() -> Callable[..., Any]:
    return torch.compile(_flex().flex_attention, fullgraph=True)


def _score_mod(args: AttentionArgs) -> ScoreMod | None:
    softcap = args.softcap
    bias = None if args.bias is None else args.bias.score_mod(*args.sizes[2:])
    if softcap is None:
        return bias

    def score_mod(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        score = softcap * torch.tanh(score / softcap)
        return score if bias is None else bias(score, b, h, i, j)

    return score_mod


def _block_mask(mask: Mask, sizes: tuple[int, int, int, int], device: torch.device) -> Any:
    """The block mask. A window mask has one for all sequences and heads."""
    sizes = (1, 1, *sizes[2:]) if isinstance(mask, WindowMask) else sizes
    return cached(mask, "block_mask", (sizes, device), lambda: _build_block_mask(mask, sizes, device))


def _build_block_mask(mask: Mask, sizes: tuple[int, int, int, int], device: torch.device) -> Any:
    """Find partial and full blocks, one row of blocks at a time."""
    (B, H, T, S), shift = sizes, sizes[3] - sizes[2]
    any_visible, all_visible = [], []
    for start in range(0, T, BLOCK_SIZE):
        rows = range(start, min(start + BLOCK_SIZE, T))
        visible = mask.tile(Tile(range(B), range(H), rows, range(S), T, S, device))
        visible = visible.expand(visible.shape[0], visible.shape[1], len(rows), S)
        # Padding beyond the edge is hidden, so that a block at the edge is never full.
        cells = torch.nn.functional.pad(visible, (0, -S % BLOCK_SIZE, 0, -len(rows) % BLOCK_SIZE))
        blocks = cells.unflatten(-1, (-1, BLOCK_SIZE)).transpose(-2, -3).flatten(-2)
        any_visible.append(blocks.any(-1))
        all_visible.append(blocks.all(-1))
    held, full = torch.stack(any_visible, -2), torch.stack(all_visible, -2)  # (b, h, row blocks, column blocks)
    return _flex().BlockMask.from_kv_blocks(
        *_block_indices(held & ~full),
        *_block_indices(full),
        BLOCK_SIZE=BLOCK_SIZE,
        mask_mod=_mask_mod(mask, shift),
        seq_lengths=(T, S),
    )


def _mask_mod(mask: Mask, shift: int) -> Callable[..., Tensor]:
    def mask_mod(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return mask.mask_mod(b, h, i, j, shift)

    return mask_mod


def _block_indices(cells: Tensor) -> tuple[Tensor, Tensor]:
    """The number of set blocks per row, and their indices, set ones first."""
    return cells.sum(-1, dtype=torch.int32), cells.int().argsort(dim=-1, descending=True, stable=True).int()


def block_mask_bytes(args: AttentionArgs) -> int:
    """Return the memory of the block mask."""
    B, H, T, S = args.sizes
    return 0 if args.mask is None else 8 * B * H * math.ceil(T / BLOCK_SIZE) * math.ceil(S / BLOCK_SIZE)
