"""Which of torch's fused kernels a GPU is at its best with. The figures behind it: docs/benchmarks."""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from softlook.ops.question import learns

SHORT = 64
"""Up to so many keys the memory-efficient kernel is the fastest."""
EVEN, EVEN_KEYS = 64, 512
"""cuDNN makes a plan for every new length, which takes long. So it is asked for even lengths only: they are few.
Where a few queries meet a growing memory, every step is a new length, and the keys must be more even still."""


def attend(
    query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, *, dropout: float, causal: bool, scale: float
) -> Tensor:
    """torch's attention, by the kernel that suits; `allowed` is added to the scores."""
    aten = torch.ops.aten
    learning = learns(query, key, value)
    grouped = query.shape[1] != key.shape[1]
    if causal and query.shape[2] != key.shape[2]:  # lines_up_the_last has seen to it that this is right
        return aten._scaled_dot_product_flash_attention(query, key, value, dropout, causal, scale=scale)[0]
    if suits_cudnn(query, key, value, allowed):
        cudnn = aten._scaled_dot_product_cudnn_attention
        return cudnn(query, key, value, allowed, learning, dropout, causal, scale=scale)[0]
    if suits_efficient(query, key, allowed) and not grouped:
        efficient = aten._scaled_dot_product_efficient_attention
        return efficient(query, key, value, None, learning, dropout, causal, scale=scale)[0]
    return scaled_dot_product_attention(query, key, value, allowed, dropout, causal, scale=scale, enable_gqa=grouped)


def lines_up_the_last(query: Tensor, key: Tensor) -> bool:
    """May the flash kernel be asked? Its causal mask lines the last query up with the last key, as ours does."""
    return (
        query.is_cuda
        and query.dtype in (torch.float16, torch.bfloat16)
        and query.shape[1] == key.shape[1]
        and query.shape[3] % 8 == 0
        and query.shape[3] <= 256
        and query.stride(3) == key.stride(3) == 1
        and torch.cuda.get_device_properties(query.device).major >= 8
        and torch.backends.cuda.flash_sdp_enabled()
    )


def suits_cudnn(query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None) -> bool:
    """On Hopper and its successor cuDNN is far ahead, at lengths that are worth a plan of their own."""
    (_, _, T, D), S = query.shape, key.shape[2]
    even = T % EVEN == 0 and S % EVEN == 0 if T >= EVEN else S % EVEN_KEYS == 0
    return (
        even
        and S > SHORT
        and D % 8 == 0
        and D <= 128
        and query.dtype in (torch.float16, torch.bfloat16)
        and all(tensor.stride(3) == 1 for tensor in (query, key, value))
        and (allowed is None or not allowed.requires_grad)
        and torch.cuda.get_device_properties(query.device).major in (9, 10)
        and torch.backends.cuda.cudnn_sdp_enabled()
        and not torch.are_deterministic_algorithms_enabled()
    )


def suits_efficient(query: Tensor, key: Tensor, allowed: Tensor | None) -> bool:
    """For sets so short that reading them is all the work; unless `torch.backends.cuda` has switched the kernel off."""
    half = query.dtype in (torch.float16, torch.bfloat16)
    fits = half and allowed is None and key.shape[2] <= SHORT and query.shape[3] % 8 == 0 and query.stride(3) == 1
    # A compiler cannot read the switch: there the choice is left to torch.
    return fits and not torch.compiler.is_compiling() and torch.backends.cuda.mem_efficient_sdp_enabled()
