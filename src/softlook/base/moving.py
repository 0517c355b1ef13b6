"""Values that hold tensors, moved from one device to another."""

from dataclasses import fields, is_dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

Value = TypeVar("Value")


def moved(value: Value, device: torch.device) -> Value:
    """The same value with its tensors on `device`; itself, not a copy, if they are there already."""
    if isinstance(value, Tensor):
        return value.to(device)  # pyright: ignore[reportReturnType]  (a tensor for a tensor)
    if value is None or isinstance(value, int | float) or not is_dataclass(value) or isinstance(value, type):
        return value
    old = {field.name: getattr(value, field.name) for field in fields(value)}
    changed = {name: new for name, part in old.items() if (new := moved(part, device)) is not part}
    return replace(value, **changed) if changed else value
