"""Values that hold tensors, moved from one device to another."""

from dataclasses import fields, is_dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

Value = TypeVar("Value")


def moved(value: Value, device: torch.device) -> Value:
    """The same value with its tensors on `device`; itself, not a copy, if they are there already."""
    if isinstance(value, Tensor):
        double = value.dtype == torch.float64 and device.type == "mps"  # which has no double precision
        return value.to(device, torch.float32 if double else value.dtype)  # pyright: ignore[reportReturnType]
    if value is None or isinstance(value, int | float) or not is_dataclass(value) or isinstance(value, type):
        return value
    changed = {}
    for field in fields(value):
        old = getattr(value, field.name)
        new = moved(old, device)
        if new is not old:
            changed[field.name] = new
    return replace(value, **changed) if changed else value
