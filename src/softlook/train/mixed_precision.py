"""Mixed precision: compute dtype, autocast, bfloat16 on CPUs.

On a GPU this is autocast. A CPU with bfloat16 units multiplies matrices twice as fast in it, but everything between the
products would be slower than in float32: there, only linear layers compute in bfloat16.
"""

import math
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from softlook.train.config import Precision

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def choose_dtype(precision: Precision, device: torch.device) -> torch.dtype:
    """The compute dtype; "auto" is bfloat16 on a GPU and float32 elsewhere."""
    if precision != "auto":
        return DTYPES[precision]
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def autocast(dtype: torch.dtype, device: torch.device) -> AbstractContextManager[object]:
    """torch.autocast to `dtype`; the weights stay in float32."""
    return nullcontext() if dtype == torch.float32 else torch.autocast(device.type, dtype)


def bf16_if_faster(device: torch.device) -> AbstractContextManager[object]:
    """Context that computes in bfloat16 what this device computes faster in it."""
    if device.type == "cpu":
        return Bf16LinearMode() if cpu_has_bf16() else nullcontext()
    return autocast(choose_dtype("auto", device), device)


@cache
def cpu_has_bf16() -> bool:
    """Whether this CPU has bfloat16 units (AVX512-BF16 or AMX)."""
    capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


class Bf16LinearMode(TorchFunctionMode):
    """Context in which `F.linear` on float32 multiplies in bfloat16 and returns float32."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        call = _linear if func is F.linear else func
        return call(*args, **(kwargs or {}))


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if input.dtype != torch.float32:
        return F.linear(input, weight, bias)
    return _Bf16Linear.apply(input, weight, bias)  # pyright: ignore[reportReturnType]


class _Bf16Linear(torch.autograd.Function):
    """x W^T + b and its gradients: products and saved tensors in bfloat16, sums in float32."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        x, weight = input.reshape(math.prod(input.shape[:-1]), input.shape[-1]).bfloat16(), weight.bfloat16()
        ctx.save_for_backward(x, weight)
        ctx.shape, ctx.has_bias = input.shape, bias is not None
        output = (x @ weight.T).float()
        return (output if bias is None else output.add_(bias)).view(*input.shape[:-1], len(weight))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        flat = grads[0].reshape(len(x), len(weight))
        grad = flat.bfloat16()
        grad_input = (grad @ weight).float().view(ctx.shape) if ctx.needs_input_grad[0] else None
        grad_weight = (grad.T @ x).float() if ctx.needs_input_grad[1] else None
        return grad_input, grad_weight, flat.sum(0) if ctx.has_bias and ctx.needs_input_grad[2] else None
