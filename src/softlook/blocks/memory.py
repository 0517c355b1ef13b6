"""What a decoder keeps of the past. It belongs to whoever loops; a layer adds to it and forgets it."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

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


class Growing:
    """Everything is kept, and what is new is put behind it.

    >>> memory = Growing()
    >>> key = value = torch.randn(1, 2, 3, 4)
    >>> memory.extend(key, value)[0].shape, memory.extend(key, value)[0].shape
    (torch.Size([1, 2, 3, 4]), torch.Size([1, 2, 6, 4]))
    """

    def __init__(self) -> None:
        self.own: KeyValue | None = None
        self.other: KeyValue | None = None

    @property
    def length(self) -> int:
        return 0 if self.own is None else self.own[0].shape[2]

    def extend(self, key: Tensor, value: Tensor) -> KeyValue:
        if self.own is not None:
            key, value = torch.cat([self.own[0], key], 2), torch.cat([self.own[1], value], 2)
        self.own = (key, value)
        return self.own

    def recall(self, make: Callable[[], KeyValue]) -> KeyValue:
        if self.other is None:
            self.other = make()
        return self.other

    def select(self, rows: Tensor) -> None:
        self.own, self.other = (
            None if kept is None else (kept[0].index_select(0, rows), kept[1].index_select(0, rows))
            for kept in (self.own, self.other)
        )


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


def memories(memory: Memory | None, depth: int) -> list[LayerMemory] | list[None]:
    """A memory for each layer, or none for any."""
    return [None] * depth if memory is None else memory.layers(depth)


def places(ids: Tensor, positions: Tensor | None, memory: Memory | None) -> Tensor:
    """Where the tokens stand: as told (T,) or (B, T), or one after the other behind what the memory holds."""
    if positions is not None:
        return positions
    start = 0 if memory is None else memory.length
    return torch.arange(start, start + ids.shape[1], device=ids.device)
