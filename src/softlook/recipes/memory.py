"""How much memory a run takes, and for what. Nothing of it is a rule of thumb: a trial and the data are measured."""

import gc
import mmap
import sys
from array import array
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from types import FunctionType, ModuleType
from typing import Any

from torch import Tensor, nn

from softlook.recipes.trial import Trial

SAMPLE = 200
"""Of so many things in a long list the size is looked up."""
SHARED = (type, ModuleType, FunctionType, nn.Module)
"""What a run does not have for itself, or what is counted elsewhere."""


@dataclass(frozen=True)
class Memory:
    """Bytes, by what they hold. Python, torch and what a step takes for a moment come on top."""

    weights: int
    gradients: int
    optimizer: int
    average: int
    """A second set of weights, where they are averaged over time."""
    activations: int
    """Of one batch: what is kept for the way back; on a GPU all that it takes at the peak."""
    data: int
    """Ids, or rows of a table, that are held in memory."""
    data_on_disk: int = 0
    """Those that are read where they lie."""
    best: int = 0
    """The best weights so far, where they are kept beside those that learn."""

    @property
    def total(self) -> int:
        """In memory."""
        return sum(asdict(self).values()) - self.data_on_disk

    def to_json(self) -> dict[str, int]:
        return {**asdict(self), "total": self.total}

    def __str__(self) -> str:
        parts = {
            "weights": self.weights,
            "gradients": self.gradients,
            "optimizer": self.optimizer,
            "averaged weights": self.average,
            "best weights": self.best,
            "activations of a batch": self.activations,
            "data": self.data,
        }
        said = ", ".join(f"{name} {in_words(size)}" for name, size in parts.items() if size)
        more = f"; {in_words(self.data_on_disk)} of data stay on disk" if self.data_on_disk else ""
        return f"about {in_words(self.total)} beside Python and torch themselves ({said}){more}"


def memory_of(trial: Trial, held: int, *, is_averaged: bool, is_on_disk: bool) -> Memory:
    """What a trial and the size of the data say about a run."""
    return Memory(
        weights=trial.weights,
        gradients=trial.gradients,
        optimizer=trial.optimizer,
        average=trial.weights if is_averaged else 0,
        activations=trial.activations,
        data=0 if is_on_disk else held,
        data_on_disk=held if is_on_disk else 0,
    )


def in_words(size: float) -> str:
    """Bytes as one says them.

    >>> in_words(900), in_words(2_500_000), in_words(31e9)
    ('1 kB', '2.5 MB', '31.0 GB')
    """
    if size < 1e6:
        return f"{max(size / 1e3, 1):,.0f} kB"
    return f"{size / 1e6:,.1f} MB" if size < 1e9 else f"{size / 1e9:,.1f} GB"


def held_by(things: Iterable[Any]) -> int:
    """Bytes of values and of all that they hold. Of a long list some are looked at, and the others taken to be alike.

    >>> import torch
    >>> held_by([torch.zeros(1000)]) // 1000
    4
    """
    seen: set[int] = set()
    return round(sum(_held(thing, seen) for thing in things))


def _held(thing: Any, seen: set[int]) -> float:
    if id(thing) in seen or isinstance(thing, SHARED):
        return 0
    seen.add(id(thing))
    buffer = _buffer(thing)
    if buffer is not None:
        address, size = buffer
        is_new = address not in seen
        seen.add(address)
        return size if is_new else 0
    inside = _inside(thing)
    if isinstance(thing, list | tuple) and len(inside) > SAMPLE:
        some = inside[:: len(inside) // SAMPLE]
        return sys.getsizeof(thing) + sum(_held(one, seen) for one in some) * len(inside) / len(some)
    return sys.getsizeof(thing) + sum(_held(one, seen) for one in inside)


def _inside(thing: Any) -> list[Any]:
    return list(thing) if isinstance(thing, list | tuple) else gc.get_referents(thing)


def _buffer(thing: Any) -> tuple[int, int] | None:
    """Where numbers lie, and how many bytes they are; several views of them are at one place."""
    if isinstance(thing, Tensor):
        return thing.untyped_storage().data_ptr(), thing.untyped_storage().nbytes()
    if isinstance(thing, memoryview):
        return _buffer(thing.obj) or (id(thing.obj), thing.nbytes)
    if isinstance(thing, array):
        return thing.buffer_info()[0], len(thing) * thing.itemsize
    return (id(thing), len(thing)) if isinstance(thing, mmap.mmap) else None
