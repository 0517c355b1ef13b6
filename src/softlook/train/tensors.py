"""A batch is any value that holds tensors: a tensor, a dataclass, or tuples, lists and dicts of such."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor


@runtime_checkable
class Parting(Protocol):
    """A batch that knows by itself how it comes apart."""

    def parted(self, parts: int) -> list[Any]: ...


def each(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same value with every tensor in it changed.

    >>> each({"a": (torch.zeros(1), "b")}, lambda tensor: tensor + 1)
    {'a': (tensor([1.]), 'b')}
    """
    if isinstance(value, Tensor):
        return change(value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: each(getattr(value, field.name), change) for field in fields(value)})
    if isinstance(value, dict):
        return {name: each(part, change) for name, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(each(part, change) for part in value))
    if isinstance(value, list | tuple):
        return type(value)(each(part, change) for part in value)
    return value


def there(value: Any, device: torch.device) -> Any:
    """A batch on the device that computes. Nobody waits for the copy."""
    return each(value, lambda tensor: tensor.to(device, non_blocking=device.type == "cuda"))


def rows(value: Any) -> int:
    """How many examples a batch holds: the length of its first tensor; 1 where there is none.

    >>> rows((torch.zeros(3, 2), torch.zeros(3)))
    3
    """
    found: list[int] = []
    each(value, lambda tensor: found.append(len(tensor) if tensor.ndim else 1) or tensor)
    return found[0] if found else 1


def parted(batch: Any, parts: int) -> list[Any]:
    """A batch as several smaller ones, at most one for each row.

    >>> parted((torch.tensor([1, 2, 3]), torch.tensor(0.5)), 2)
    [(tensor([1]), tensor(0.5000)), (tensor([2, 3]), tensor(0.5000))]
    """
    if parts == 1:
        return [batch]
    if isinstance(batch, Parting):
        return batch.parted(parts)
    count = rows(batch)
    bounds = [count * i // parts for i in range(parts + 1)]
    return [_cut(batch, count, slice(a, b)) for a, b in pairwise(bounds) if a < b]


def _cut(batch: Any, count: int, span: slice) -> Any:
    return each(batch, lambda tensor: tensor[span] if tensor.ndim and len(tensor) == count else tensor)
