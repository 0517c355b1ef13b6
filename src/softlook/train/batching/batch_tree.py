"""Nested batches of tensors: map, move, split.

A batch is any value that holds tensors: a tensor, a dataclass, or tuples, lists and dicts of such.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor


@runtime_checkable
class Splittable(Protocol):
    """A batch with its own way to split itself."""

    def split_into(self, chunks: int) -> list[Any]: ...


def tree_map(value: Any, fn: Callable[[Tensor], Tensor]) -> Any:
    """Apply `fn` to every tensor of a nested value.

    >>> tree_map({"a": (torch.zeros(1), "b")}, lambda tensor: tensor + 1)
    {'a': (tensor([1.]), 'b')}
    """
    if isinstance(value, Tensor):
        return fn(value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: tree_map(getattr(value, field.name), fn) for field in fields(value)})
    if isinstance(value, dict):
        return {name: tree_map(item, fn) for name, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(tree_map(item, fn) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(tree_map(item, fn) for item in value)
    return value


def to_device(value: Any, device: torch.device) -> Any:
    """Move a batch to a device; the copy to a GPU is asynchronous."""
    return tree_map(value, lambda tensor: tensor.to(device, non_blocking=device.type == "cuda"))


def batch_size(value: Any) -> int:
    """Number of examples in a batch: the length of its first tensor, or 1 without one.

    >>> batch_size((torch.zeros(3, 2), torch.zeros(3)))
    3
    """
    found: list[int] = []
    tree_map(value, lambda tensor: found.append(len(tensor) if tensor.ndim else 1) or tensor)
    return found[0] if found else 1


def split_batch(batch: Any, chunks: int) -> list[Any]:
    """Split a batch into micro-batches, at most one per example.

    >>> split_batch((torch.tensor([1, 2, 3]), torch.tensor(0.5)), 2)
    [(tensor([1]), tensor(0.5000)), (tensor([2, 3]), tensor(0.5000))]
    """
    if chunks == 1:
        return [batch]
    if isinstance(batch, Splittable):
        return batch.split_into(chunks)
    count = batch_size(batch)
    bounds = [count * i // chunks for i in range(chunks + 1)]
    return [_slice(batch, count, slice(start, end)) for start, end in pairwise(bounds) if start < end]


def _slice(batch: Any, count: int, rows: slice) -> Any:
    return tree_map(batch, lambda tensor: tensor[rows] if tensor.ndim and len(tensor) == count else tensor)
