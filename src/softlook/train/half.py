"""Half precision where a device gains by it: as for text on a GPU, and the products of linear layers on some CPUs.

A CPU with units for bfloat16 multiplies matrices twice as fast in it. What lies between the products would be slower
than in single precision there, so it stays in that; torch's autocast takes all of it.
"""

import math
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from softlook.train.device import choose_precision, working_in


def half(device: torch.device) -> AbstractContextManager[object]:
    """Inside, what this device gains by is computed in bfloat16; where it has no units for that, nothing is."""
    if device.type == "cpu":
        return HalfProducts() if cpu_has_units() else nullcontext()
    return working_in(choose_precision("auto", device), device)


@cache
def cpu_has_units() -> bool:
    """Whether this CPU multiplies bfloat16 by itself."""
    known: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(known.get("avx512_bf16") or known.get("amx_bf16"))


class HalfProducts(TorchFunctionMode):
    """Inside, linear layers take single precision in and give it out, and multiply in bfloat16."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        call = _linear if func is F.linear else func
        return call(*args, **(kwargs or {}))


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if input.dtype != torch.float32:
        return F.linear(input, weight, bias)
    return _HalfLinear.apply(input, weight, bias)  # pyright: ignore[reportReturnType]


class _HalfLinear(torch.autograd.Function):
    """x W^T + b and its gradients; sums are in single precision, what is kept for them in half."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        x, weight = input.reshape(math.prod(input.shape[:-1]), input.shape[-1]).bfloat16(), weight.bfloat16()
        ctx.save_for_backward(x, weight)
        ctx.shape, ctx.has_bias = input.shape, bias is not None
        found = (x @ weight.T).float()
        return (found if bias is None else found.add_(bias)).view(*input.shape[:-1], len(weight))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        flat = grads[0].reshape(len(x), len(weight))
        grad = flat.bfloat16()
        of_input = (grad @ weight).float().view(ctx.shape) if ctx.needs_input_grad[0] else None
        of_weight = (grad.T @ x).float() if ctx.needs_input_grad[1] else None
        return of_input, of_weight, flat.sum(0) if ctx.has_bias and ctx.needs_input_grad[2] else None
