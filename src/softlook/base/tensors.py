"""Tensors: traced or readable, dataclasses of tensors, device moves."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch._C._functorch import maybe_current_level

PLAIN_TYPES = (Tensor, nn.Parameter)
Value = TypeVar("Value")


def is_traced(*tensors: Tensor) -> bool:
    """Return whether a transform traces the computation, so that values cannot be read and nothing may be cached.

    True under torch.compile and torch.export, inside `vmap` and other `torch.func` transforms, while `make_fx` or
    `torch.jit` traces, under FakeTensorMode and any other dispatch mode, and for tensors without data (the meta
    device) or of a subclass.

    >>> is_traced(torch.ones(2)), is_traced(torch.ones(2, device="meta"))
    (False, True)
    """
    if torch.compiler.is_compiling() or torch._C._is_tracing():  # torch.jit.is_tracing, without its own checks
        return True
    if maybe_current_level() is not None or torch._C._len_torch_dispatch_stack():
        return True
    return any(type(tensor) not in PLAIN_TYPES or tensor.is_meta for tensor in tensors)


def can_read(*tensors: Tensor) -> bool:
    """Return whether Python can read the values without waiting: eager CPU tensors.

    >>> can_read(torch.ones(2))
    True
    """
    return not is_traced(*tensors) and all(tensor.is_cpu for tensor in tensors)


def map_tensors(value: Value, function: Callable[[Tensor], Tensor]) -> Value:
    """Apply `function` to every tensor of a (nested) dataclass; return the value itself if nothing changed."""
    if isinstance(value, Tensor):
        return function(value)  # pyright: ignore[reportReturnType]
    if value is None or isinstance(value, int | float) or not is_dataclass(value) or isinstance(value, type):
        return value
    changed = {}
    for field in fields(value):
        old = getattr(value, field.name)
        new = map_tensors(old, function)
        if new is not old:
            changed[field.name] = new
    return replace(value, **changed) if changed else value


def to_device(value: Value, device: torch.device) -> Value:
    """Move the tensors of a dataclass to `device`; return the value itself if they are already there."""

    def move(tensor: Tensor) -> Tensor:
        double = tensor.dtype == torch.float64 and device.type == "mps"  # MPS has no float64
        return tensor.to(device, torch.float32 if double else tensor.dtype)

    return map_tensors(value, move)
