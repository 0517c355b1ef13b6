"""Tensors and token sequences: traced or readable, nested values, device moves, truncation, token types."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

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
    """Apply `function` to every tensor of nested dataclasses, dicts, lists and tuples.

    Returns the value itself if nothing changed.

    >>> map_tensors({"a": (torch.zeros(1), "b")}, lambda tensor: tensor + 1)
    {'a': (tensor([1.]), 'b')}
    """
    if isinstance(value, Tensor):
        return function(value)  # pyright: ignore[reportReturnType]
    if value is None or isinstance(value, int | float | str):
        return value
    nested: Any = value
    if is_dataclass(value) and not isinstance(value, type):
        changed = {}
        for field in fields(value):
            old = getattr(value, field.name)
            new = map_tensors(old, function)
            if new is not old:
                changed[field.name] = new
        return replace(value, **changed) if changed else value
    if isinstance(nested, dict):
        items = [map_tensors(item, function) for item in nested.values()]
        return value if _identical(items, nested.values()) else dict(zip(nested, items, strict=True))  # pyright: ignore
    if isinstance(nested, list | tuple):
        items = [map_tensors(item, function) for item in nested]
        make: Any = getattr(nested, "_make", type(nested))  # of a named tuple
        return value if _identical(items, nested) else make(items)  # pyright: ignore
    return value


def _identical(items: Iterable[Any], others: Iterable[Any]) -> bool:
    return all(one is other for one, other in zip(items, others, strict=True))


def to_device(value: Value, device: torch.device) -> Value:
    """Move the tensors of a nested value to `device`; return the value itself if they are already there."""

    def move(tensor: Tensor) -> Tensor:
        double = tensor.dtype == torch.float64 and device.type == "mps"  # MPS has no float64
        return tensor.to(device, torch.float32 if double else tensor.dtype)

    return map_tensors(value, move)


def truncate_pair(
    first: Sequence[int], second: Sequence[int], max_length: int, *, keep_end: bool = False
) -> tuple[Sequence[int], Sequence[int]]:
    """Truncate two texts to `max_length` tokens in total, the longer one first.

    With `keep_end`, a single text keeps its beginning and its end, where the conclusion often is.

    >>> truncate_pair([1, 2, 3, 4, 5], [6, 7], 5), truncate_pair([1, 2, 3, 4, 5, 6], [], 4, keep_end=True)
    (([1, 2, 3], [6, 7]), ([1, 2, 3, 6], []))
    """
    if keep_end and not second and len(first) > max_length:
        tail = max_length // 4
        return [*first[: max_length - tail], *first[len(first) - tail :]], second
    shorter = min(len(first), len(second), max_length // 2)
    first_limit, second_limit = max_length - len(second), max_length - len(first)
    if len(first) >= len(second):
        return first[: max(first_limit, max_length - shorter)], second[: max(second_limit, shorter)]
    return first[: max(first_limit, shorter)], second[: max(second_limit, max_length - shorter)]


def supported_token_types(model: nn.Module, token_types: Tensor) -> Tensor | None:
    """Token types clamped to those the model embeds; None if it has none (DistilBERT)."""
    count = getattr(getattr(getattr(model, "module", model), "config", None), "token_types", 2)
    return token_types.clamp(max=count - 1) if count else None
