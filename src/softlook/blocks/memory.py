"""What a decoder keeps of the past. It belongs to whoever loops; a layer adds to it and forgets it."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from softlook.base.errors import ConfigError, ShapeError

KeyValue = tuple[Tensor, Tensor]
"""Keys and values of one layer, (B, G, S, D) each."""


@runtime_checkable
class LayerMemory(Protocol):
    """The memory of one layer."""

    @property
    def length(self) -> int:
        """How many positions came by so far."""
        ...

    def extend(self, key: Tensor, value: Tensor) -> KeyValue:
        """Keep what is new; give back what may be looked at now."""
        ...

    def recall(self, make: Callable[[], KeyValue]) -> KeyValue:
        """What was made of another sequence: made once, and then remembered."""
        ...

    def select(self, rows: Tensor) -> None:
        """Go on with these rows of the batch, in this order; a row may come several times or not at all."""
        ...

    def forget(self, count: int) -> None:
        """As though the last `count` positions had not come; what was made of another sequence stays."""
        ...


@runtime_checkable
class SharingMemory(LayerMemory, Protocol):
    """The memory of one layer in which several rows that stand side by side may share one other sequence."""

    def follow(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """Go on with these rows of one's own; and with these other sequences, or with all of them as they are."""
        ...


class Recalling(ABC):
    """What memories of one layer have in common: what was made of another sequence is made once, and then kept."""

    other: KeyValue | None = None

    def recall(self, make: Callable[[], KeyValue]) -> KeyValue:
        if self.other is None:
            self.other = make()
        return self.other

    def select(self, rows: Tensor) -> None:
        self.follow(rows, rows)

    @abstractmethod
    def follow(self, rows: Tensor, sources: Tensor | None = None) -> None: ...


class Growing(Recalling):
    """Everything is kept, and what is new is put behind it.

    >>> memory = Growing()
    >>> key = value = torch.randn(1, 2, 3, 4)
    >>> memory.extend(key, value)[0].shape, memory.extend(key, value)[0].shape
    (torch.Size([1, 2, 3, 4]), torch.Size([1, 2, 6, 4]))
    """

    def __init__(self) -> None:
        self.own: KeyValue | None = None

    @property
    def length(self) -> int:
        return 0 if self.own is None else self.own[0].shape[2]

    def extend(self, key: Tensor, value: Tensor) -> KeyValue:
        if self.own is not None:
            key, value = torch.cat([self.own[0], key], 2), torch.cat([self.own[1], value], 2)
        self.own = (key, value)
        return self.own

    def follow(self, rows: Tensor, sources: Tensor | None = None) -> None:
        self.own, self.other = picked(self.own, rows), picked(self.other, sources)

    def forget(self, count: int) -> None:
        check_forgetting(count, self.length)
        if self.own is not None:
            left = self.length - count
            self.own = (self.own[0][:, :, :left], self.own[1][:, :, :left])


class Memory:
    """One memory for each layer of a model, made when the model first asks.

    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab=10, context=8, dim=16, depth=2, heads=2)).eval()
    >>> ids, memory = torch.tensor([[3, 1, 4]]), Memory()
    >>> steps = [model(ids[:, t : t + 1], memory=memory) for t in range(3)]
    >>> torch.allclose(torch.cat(steps, 1), model(ids), atol=1e-5)
    True
    """

    def __init__(self, make: Callable[[], LayerMemory] = Growing) -> None:
        self.make = make
        self.kept: list[LayerMemory] = []

    @property
    def length(self) -> int:
        """How many positions came by so far: the number of the next one."""
        return self.kept[0].length if self.kept else 0

    def layers(self, depth: int) -> list[LayerMemory]:
        """The memories of a model with `depth` layers."""
        while len(self.kept) < depth:
            self.kept.append(self.make())
        return self.kept[:depth]

    def select(self, rows: Tensor) -> None:
        """Go on with these rows of the batch: hypotheses that are kept, copied or dropped."""
        for layer in self.kept:
            layer.select(rows)

    def branch(self, rows: Tensor, count: int) -> None:
        """Each row goes on in `count` ways, side by side, as `rows` says: 0, 0, 1, 1, ... for two.

        They share what was made of other sequences.
        """
        if count > 1:
            self.follow(rows)

    def follow(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """Go on with these rows of one's own; and with these other sequences, or with all of them as they are."""
        for layer in self.kept:
            follow = getattr(layer, "follow", None)  # asking whether it is a SharingMemory takes far longer
            if follow is None:
                raise ShapeError(f"rows of a {type(layer).__name__} cannot share what was made of other sequences")
            follow(rows, sources)

    def forget(self, count: int) -> None:
        """As though the last `count` positions had not come: words that were only guessed."""
        for layer in self.kept:
            layer.forget(count)


def picked(kept: KeyValue | None, rows: Tensor | None) -> KeyValue | None:
    """These rows of keys and values; all of them, and no copy, where none are told."""
    return kept if kept is None or rows is None else (kept[0].index_select(0, rows), kept[1].index_select(0, rows))


def check_forgetting(count: int, length: int) -> None:
    if count > length:
        raise ShapeError(f"{count} positions cannot be forgotten: only {length} came by")


def check_memory(memory: Memory | None, *, causal: bool) -> None:
    """Refuse a memory where tokens also see those after them: what was kept of the past would have to change."""
    if memory is not None and not causal:
        raise ConfigError(
            "this model looks both ways (causal=False), so it neither generates text nor takes a memory. "
            "Give it whole sequences, or use a causal model."
        )


def memories(memory: Memory | None, depth: int) -> list[LayerMemory] | list[None]:
    """A memory for each layer, or none for any."""
    return [None] * depth if memory is None else memory.layers(depth)


def places(ids: Tensor, positions: Tensor | None, memory: Memory | None) -> Tensor:
    """Where the tokens stand: as told (T,) or (B, T), or one after the other behind what the memory holds."""
    if positions is not None:
        return positions
    start = 0 if memory is None else memory.length
    return torch.arange(start, start + ids.shape[1], device=ids.device)
