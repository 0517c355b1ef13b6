"""Kernel cache of `attention`: repeated calls skip the checks of their arguments and the planning.

The key of a call has shapes, strides, dtypes, devices, mask, scale, dropout, whether a gradient is needed, and torch's
backend switches. A look-up takes about two microseconds.
"""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor
from torch._C._functorch import maybe_current_level

from softlook.ops.backends.plan import Plan
from softlook.ops.masks.base import Mask
from softlook.ops.masks.cache import can_cache
from softlook.ops.masks.masks import WindowMask

CallKey = tuple[Any, ...]
"""Everything that decides which kernel runs."""
KernelCache = dict[CallKey, Callable[[Tensor, Tensor, Tensor], Tensor] | Literal[False]]
"""Kernels by call; False for calls that are planned each time."""
MAX_SHARED, MAX_PER_MASK = 256, 8
"""Capacities of the cache of windows and calls without a mask, and of any other mask's. A full cache is cleared."""
MAX_MAP = 1 << 14
"""Largest number of queries times keys for which a kernel with a mask tensor is cached: it holds that tensor."""
torch_c: Any = torch._C
_shared: KernelCache = {}


def call_key(
    query: Tensor, key: Tensor, value: Tensor, mask: object, scale: float | None, dropout: float
) -> CallKey | None:
    """The key of a call; None for calls that are not cached: under a tracer, a transform or autocast."""
    if type(query) is not Tensor or type(key) is not Tensor or type(value) is not Tensor:
        return None
    if maybe_current_level() is not None or torch_c._len_torch_dispatch_stack():
        return None
    if torch_c._is_any_autocast_enabled() or torch_c._is_tracing() or not (query.is_cpu or query.is_cuda):
        return None
    return (
        query.shape,
        key.shape,
        value.shape,
        query.stride(),
        key.stride(),
        value.stride(),
        query.dtype,
        key.dtype,
        value.dtype,
        query.device,
        key.device,
        value.device,
        (mask.left, mask.right) if type(mask) is WindowMask else None,
        scale,
        dropout,
        torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad),
        # The switches of torch.backends.cuda, without the time of their Python functions.
        torch_c._get_flash_sdp_enabled(),
        torch_c._get_mem_efficient_sdp_enabled(),
        torch_c._get_cudnn_sdp_enabled(),
        torch_c._get_deterministic_algorithms(),
    )


def cached_kernels(mask: object) -> KernelCache | None:
    """The kernel cache of calls with this mask, which lives as long as the mask; None in the mask's first call.

    Windows and calls without a mask share one. Many other masks are used only once, where filling a cache costs time.
    """
    if mask is None or type(mask) is WindowMask:
        return _shared
    if not isinstance(mask, Mask):
        return None
    own = vars(mask)
    if "_kernels" not in own:
        own["_kernels"] = {}
        return None
    return own["_kernels"]


def cache_kernel(call: CallKey, kernels: KernelCache, plan: Plan) -> None:
    """Add the kernel of a plan to the cache."""
    if not can_cache():
        return
    if len(kernels) >= (MAX_SHARED if kernels is _shared else MAX_PER_MASK):
        kernels.clear()
    (_, _, T, _), (_, _, S, _) = call[0], call[1]
    holds_mask = plan.backend == "sdpa" and not plan.native_mask
    kernels[call] = False if holds_mask and T * S > MAX_MAP else plan.bind() or False


def clear_kernel_cache() -> None:
    """Clear the cache that windows and calls without a mask share."""
    _shared.clear()
