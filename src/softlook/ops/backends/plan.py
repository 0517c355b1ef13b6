"""Attention plan: which kernel runs, why, and its temporary memory."""

from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import Literal

import torch
from torch import Tensor

from softlook.base.errors import BackendError
from softlook.ops.arguments import MIN_TILE_ROWS, AttentionArgs
from softlook.ops.backends import flash, flex, reference, sdpa, tiled
from softlook.ops.backends.sdpa import Kernel
from softlook.ops.masks.masks import WindowMask

Backend = Literal["auto", "reference", "sdpa", "flex", "tiled"]
BACKENDS = ("reference", "sdpa", "flex", "tiled")
FLEX_MIN_LENGTH = 4096
"""From this many queries and keys on, a mask is not materialized on a GPU."""


class Why(Enum):
    """The rule that selected a kernel. `Plan.reason` turns it into a sentence."""

    EMPTY = "a size is 0, so there is nothing to compute"
    REQUESTED = "requested by backend="
    FLEX_ONLY = "{unsupported}; a compiled kernel computes it"
    TILED_ONLY = "{unsupported}; tiled attention is exact and never holds the whole map"
    TILED_NO_FLEX = "{unsupported}, and FlexAttention cannot run: {flex}"
    FLEX_SKIPS = "a compiled kernel skips what {mask} hides"
    TILED_SKIPS = "{mask} hides most of the map, and tiled attention skips it"
    VARLEN = "each document runs through torch's kernels on its own"
    FLASH_VARLEN = "torch's flash kernel takes all packed documents in one call, without a mask"
    FLASH_WINDOW = "torch's flash kernel has windows, and skips what {mask} hides"
    SHORT_MAPS = "one program computes a whole map of short sequences"
    SHORT = "for so few queries and keys, three matrix operations are faster than the fused kernel"
    NO_FUSED = "torch has no fused kernel for these arguments and computes the whole map"
    MATERIALIZED = "mask and bias are materialized for torch's fused kernel"
    CAUSAL = "torch's fused kernel has a built-in causal mask"
    PLAIN = "torch's fused kernel computes this directly"


class Plan:
    """Which kernel a call of `attention` runs, why, and how many bytes of temporary memory it allocates.

    `reason` and `bytes` are computed when they are read: execution needs neither.
    """

    __slots__ = ("_args", "_dropout", "_value", "_why", "kernel", "native_mask")

    def __init__(
        self, kernel: Kernel, native_mask: bool, why: Why | None, args: AttentionArgs, value: Tensor, dropout: float
    ) -> None:
        self.kernel: Kernel = kernel
        """The kernel that runs: see `Kernel`."""
        self.native_mask = native_mask
        """Whether the kernel needs no mask tensor."""
        self._why, self._args, self._value, self._dropout = why, args, value, dropout

    @property
    def backend(self) -> str:
        """The value of `backend=` that selects this kernel."""
        return self.kernel if self.kernel in BACKENDS else "sdpa"

    @property
    def reason(self) -> str:
        """Why this kernel was selected."""
        args = self._args
        text = (self._why or _sdpa_rule(self.kernel, self.native_mask, args.mask is not None)).value
        if "{" not in text:
            return text
        flex_reason = flex.unsupported_reason(args, self._value, self._dropout) if "{flex}" in text else None
        return text.format(unsupported=_sdpa_unsupported(args), flex=flex_reason, mask=args.mask)

    @property
    def bytes(self) -> int:
        """Bytes of temporary memory, without inputs and output."""
        return _temporary_bytes(self.kernel, self.native_mask, self._args)

    def run(self) -> Tensor:
        """Run the kernel. (B, H, T, E)"""
        args, value, dropout, kernel = self._args, self._value, self._dropout, self.kernel
        if kernel == "tiled":
            return tiled.tiled_attention(args, value, dropout)
        if kernel == "reference":
            return reference.reference_attention(args, value, dropout)
        if kernel == "flex":
            return flex.flex_attention(args, value)
        return sdpa.sdpa_attention(kernel, self.native_mask, args, value, dropout)

    def bind(self) -> Callable[[Tensor, Tensor, Tensor], Tensor] | None:
        """The kernel for other tensors with the sizes, strides and dtypes of these; None where it is planned anew."""
        if self.kernel == "flex":
            return flex.bind_flex(self._args)
        if self.backend != "sdpa":
            return None
        return sdpa.bind_kernel(self.kernel, self.native_mask, self._args, self._value, self._dropout)

    def __str__(self) -> str:
        name = self.kernel if self.kernel == self.backend else f"{self.backend} ({self.kernel})"
        return f"{name}: {self.reason} ({self.bytes / 2**20:.1f} MiB of temporary memory)"

    def __repr__(self) -> str:
        return f"Plan(kernel={self.kernel!r}, reason={self.reason!r}, bytes={self.bytes})"


def plan(args: AttentionArgs, value: Tensor, dropout: float = 0.0, backend: Backend = "auto") -> Plan:
    """Select the kernel for these arguments; BackendError if the requested backend does not support them."""
    if 0 in args.sizes or 0 in value.shape:
        _check_backend(backend, args, value, dropout)
        why = Why.REQUESTED if backend == "reference" else Why.EMPTY
        return Plan("reference", False, why, args, value, dropout)
    if backend == "auto":
        return Plan(*_select(args, value, dropout), args, value, dropout)
    _check_backend(backend, args, value, dropout)
    if backend == "sdpa":
        kernel, native_mask = sdpa.select_kernel(args, value, dropout)
        return Plan(kernel, native_mask, Why.REQUESTED, args, value, dropout)
    return Plan(backend, False, Why.REQUESTED, args, value, dropout)


def _check_backend(backend: str, args: AttentionArgs, value: Tensor, dropout: float) -> None:
    if backend == "auto":
        return
    if backend not in BACKENDS:
        raise BackendError(f"backend expects one of auto, {', '.join(BACKENDS)}, got {backend!r}")
    unsupported = None
    if backend == "sdpa":
        unsupported = sdpa.unsupported_reason(args)
    elif backend == "flex":
        unsupported = flex.unsupported_reason(args, value, dropout)
    if unsupported is not None:
        other = Plan(*_select(args, value, dropout), args, value, dropout).backend
        raise BackendError(f"backend={backend!r} does not support this: {unsupported}. backend='auto' uses {other!r}.")


def _select(args: AttentionArgs, value: Tensor, dropout: float) -> tuple[Kernel, bool, Why | None]:
    """The best kernel, whether it needs no mask tensor, and the rule that selected it; None: `_sdpa_rule`."""
    if args.bias is args.softcap is args.sink is args.score is None or _sdpa_unsupported(args) is None:
        return _select_sdpa(args, value, dropout)
    if not args.query.is_cuda:
        return "tiled", False, Why.TILED_ONLY
    if flex.unsupported_reason(args, value, dropout) is None:
        return "flex", False, Why.FLEX_ONLY
    return "tiled", False, Why.TILED_NO_FLEX


def _select_sdpa(args: AttentionArgs, value: Tensor, dropout: float) -> tuple[Kernel, bool, Why | None]:
    """torch's SDPA supports the arguments; where a mask hides much, a kernel that skips hidden keys may be faster."""
    kernel, native_mask = sdpa.select_kernel(args, value, dropout)
    mask = args.mask
    if mask is not None and "varlen" not in kernel and not sdpa.has_native_mask(args):
        if torch.compiler.is_exporting():
            pass  # sizes are symbols, which cannot be compared
        elif args.query.is_cuda:
            long = min(args.sizes[2:]) >= FLEX_MIN_LENGTH and args.bias is None
            if long and flex.unsupported_reason(args, value, dropout) is None:
                return "flex", False, Why.FLEX_SKIPS
            if flash.has_window(args, value):
                return "flash_window", True, Why.FLASH_WINDOW
        elif _visible_share(args) <= (1 / 3 if args.requires_grad_with(value) else 1 / 2):
            return "tiled", False, Why.TILED_SKIPS
    return kernel, native_mask, None


def _sdpa_rule(kernel: Kernel, native_mask: bool, masked: bool) -> Why:
    """Why one of torch's kernels was selected."""
    if kernel == "varlen":
        return Why.VARLEN
    if kernel == "flash_varlen":
        return Why.FLASH_VARLEN
    if kernel == "short":
        return Why.SHORT_MAPS
    if kernel == "math":
        return Why.SHORT
    if kernel == "unfused":
        return Why.NO_FUSED
    if not native_mask:
        return Why.MATERIALIZED
    return Why.CAUSAL if masked else Why.PLAIN


def _sdpa_unsupported(args: AttentionArgs) -> str | None:
    """Why torch's SDPA is not used: it does not support the arguments, or would need a bias materialized."""
    reason = sdpa.unsupported_reason(args)
    if reason is None and args.bias is not None and not args.bias.is_dense:
        return "torch's kernels need the bias as a tensor"
    return reason


def _visible_share(args: AttentionArgs) -> float:
    """The share of the map that tiled attention would compute, estimated from a few row tiles."""
    mask, tile, (_, _, T, S) = args.mask, args.tile, args.sizes
    assert mask is not None
    if not S:
        return 1.0
    if T <= tiled.TILE_ROWS:
        return len(mask.visible_range(tile)) / S
    starts = range(0, T, max(tiled.TILE_ROWS, T // 8))
    row_tiles = [replace(tile, rows=range(start, min(start + tiled.TILE_ROWS, T))) for start in starts]
    return sum(len(mask.visible_range(row_tile)) for row_tile in row_tiles) / (len(row_tiles) * S)


def _temporary_bytes(kernel: Kernel, native_mask: bool, args: AttentionArgs) -> int:
    (B, H, T, S), size = args.sizes, args.query.element_size()
    float_size = max(size, 4)
    if kernel in ("varlen", "flash_varlen", "flash_window", "short"):
        return 0
    if kernel == "flex":
        return flex.block_mask_bytes(args)
    if kernel == "reference":
        return 2 * B * H * T * S * float_size
    if kernel == "tiled":
        row_tile = min(T, MIN_TILE_ROWS) * min(S, tiled.TILE_COLUMNS) * args.group_size
        return 3 * float_size * min(B * H * T * S, max(tiled.tile_elements(args.query.device), row_tile))
    weights = 2 * B * H * T * S if kernel in ("math", "unfused") else 0
    maps = B * H if args.bias is not None else 1 if isinstance(args.mask, WindowMask) else B
    return weights * size + (0 if native_mask else T * S * maps) * (size + 1)
