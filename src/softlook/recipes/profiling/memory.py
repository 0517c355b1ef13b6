"""Memory estimate of a training run."""

import gc
import mmap
import sys
from array import array
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from types import FunctionType, ModuleType
from typing import Any

from torch import Tensor, nn

from softlook.recipes.profiling.step_benchmark import StepProfile

SAMPLED_ITEMS = 200
"""Items of a long list whose size is measured."""
NOT_COUNTED = (type, ModuleType, FunctionType, nn.Module)
"""Objects that are shared with other code, or counted elsewhere."""


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes by purpose. Python, torch and temporary buffers come on top."""

    weights: int
    gradients: int
    optimizer: int
    ema: int
    """A second set of weights, if an EMA is kept."""
    activations: int
    """Of one batch: tensors saved for the backward pass; on a GPU, the peak of a step."""
    data: int
    """Token ids, or table rows, in memory."""
    data_on_disk: int = 0
    """Memory-mapped data."""
    best: int = 0
    """The best weights so far, if they are kept in memory."""

    @property
    def total(self) -> int:
        """Total bytes in memory."""
        return sum(asdict(self).values()) - self.data_on_disk

    def to_json(self) -> dict[str, int]:
        return {**asdict(self), "total": self.total}

    def __str__(self) -> str:
        parts = {
            "weights": self.weights,
            "gradients": self.gradients,
            "optimizer": self.optimizer,
            "EMA weights": self.ema,
            "best weights": self.best,
            "activations": self.activations,
            "data": self.data,
        }
        listed = ", ".join(f"{name} {format_bytes(size)}" for name, size in parts.items() if size)
        on_disk = f"; {format_bytes(self.data_on_disk)} of data stay on disk" if self.data_on_disk else ""
        return f"about {format_bytes(self.total)} besides Python and torch ({listed}){on_disk}"


def estimate_memory(profile: StepProfile, data_bytes: int, *, has_ema: bool, is_on_disk: bool) -> MemoryEstimate:
    """Memory of a run, from a step profile and the size of the data."""
    return MemoryEstimate(
        weights=profile.weights,
        gradients=profile.gradients,
        optimizer=profile.optimizer,
        ema=profile.weights if has_ema else 0,
        activations=profile.activations,
        data=0 if is_on_disk else data_bytes,
        data_on_disk=data_bytes if is_on_disk else 0,
    )


def format_bytes(size: float) -> str:
    """Bytes for people.

    >>> format_bytes(900), format_bytes(2_500_000), format_bytes(31e9)
    ('1 kB', '2.5 MB', '31.0 GB')
    """
    if size < 1e6:
        return f"{max(size / 1e3, 1):,.0f} kB"
    return f"{size / 1e6:,.1f} MB" if size < 1e9 else f"{size / 1e9:,.1f} GB"


def size_in_memory(values: Iterable[Any]) -> int:
    """Bytes of objects and everything they refer to. Of a long list, some items are measured and extrapolated.

    >>> import torch
    >>> size_in_memory([torch.zeros(1000)]) // 1000
    4
    """
    seen: set[int] = set()
    return round(sum(_size(value, seen) for value in values))


def _size(value: Any, seen: set[int]) -> float:
    if id(value) in seen or isinstance(value, NOT_COUNTED):
        return 0
    seen.add(id(value))
    buffer = _buffer(value)
    if buffer is not None:
        address, size = buffer
        is_new = address not in seen
        seen.add(address)
        return size if is_new else 0
    children = list(value) if isinstance(value, list | tuple) else gc.get_referents(value)
    if isinstance(value, list | tuple) and len(children) > SAMPLED_ITEMS:
        some = children[:: len(children) // SAMPLED_ITEMS]
        return sys.getsizeof(value) + sum(_size(child, seen) for child in some) * len(children) / len(some)
    return sys.getsizeof(value) + sum(_size(child, seen) for child in children)


def _buffer(value: Any) -> tuple[int, int] | None:
    """Address and bytes of a buffer; all views of it have the same address."""
    if isinstance(value, Tensor):
        return value.untyped_storage().data_ptr(), value.untyped_storage().nbytes()
    if isinstance(value, memoryview):
        return _buffer(value.obj) or (id(value.obj), value.nbytes)
    if isinstance(value, array):
        return value.buffer_info()[0], len(value) * value.itemsize
    return (id(value), len(value)) if isinstance(value, mmap.mmap) else None
