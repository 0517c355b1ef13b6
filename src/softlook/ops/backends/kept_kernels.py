"""Kernels that are kept between calls: a call like an earlier one neither checks its arguments nor plans again.

A call is like another if shapes, strides, dtypes, devices, mask, scale, dropout, the need for a gradient and torch's
switches are equal. Then the same kernel runs. Finding it takes about two microseconds.
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

Call = tuple[Any, ...]
"""What decides which kernel runs."""
Kernels = dict[Call, Callable[[Tensor, Tensor, Tensor], Tensor] | Literal[False]]
"""By call; False where each call is planned anew."""
MAX_SHARED, MAX_PER_MASK = 256, 8
"""Calls that are kept for windows and no mask, and for each other mask. When there are more, all are dropped."""
MAX_MAP = 1 << 14
"""Queries times keys up to which a kernel with a mask tensor is kept: it holds that memory."""
torch_c: Any = torch._C
_shared: Kernels = {}


def describe_call(
    query: Tensor, key: Tensor, value: Tensor, mask: object, scale: float | None, dropout: float
) -> Call | None:
    """What decides which kernel runs; None where that cannot be kept: under a tracer, a transform, or autocast."""
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


def kept_kernels(mask: object) -> Kernels | None:
    """The kept kernels of calls with this mask, which live as long as it does; None in its first call.

    Windows and no mask share theirs. Many other masks are used in one call only, where keeping a kernel costs time.
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


def keep_kernel(call: Call, kernels: Kernels, plan: Plan) -> None:
    """Keep the kernel of a plan for calls like this one."""
    if not can_cache():
        return
    if len(kernels) >= (MAX_SHARED if kernels is _shared else MAX_PER_MASK):
        kernels.clear()
    (_, _, T, _), (_, _, S, _) = call[0], call[1]
    holds_mask = plan.backend == "sdpa" and not plan.native_mask
    kernels[call] = False if holds_mask and T * S > MAX_MAP else plan.bind() or False


def drop_kept_kernels() -> None:
    """Forget the kernels of calls with a window and without a mask."""
    _shared.clear()
