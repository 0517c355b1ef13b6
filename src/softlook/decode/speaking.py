"""Models as something that can be asked for the next word. What is remembered between two words belongs here."""

from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from softlook.blocks.memory import Memory


@runtime_checkable
class Speaker(Protocol):
    """A batch of sequences under way."""

    def next(self, ids: Int[Tensor, "N T"]) -> Float[Tensor, "N V"]:
        """Take in what is new, one row per sequence, and score what may come after it."""
        ...

    def select(self, rows: Int[Tensor, " M"]) -> None:
        """Go on with these sequences, in this order; one may come several times or not at all."""
        ...


class Continuing:
    """A decoder-only model that goes on with what it is given."""

    def __init__(self, model: Any) -> None:
        self.model, self.memory = model, Memory()

    def next(self, ids: Int[Tensor, "N T"]) -> Float[Tensor, "N V"]:
        return self.model(ids, memory=self.memory)[:, -1]

    def select(self, rows: Int[Tensor, " M"]) -> None:
        self.memory.select(rows)


class Translating:
    """An encoder-decoder model that says what it has read in other words. The source is read once."""

    def __init__(self, model: Any, source: Int[Tensor, "N S"], present: Bool[Tensor, "N S"] | None = None) -> None:
        self.model, self.memory, self.present = model, Memory(), present
        with torch.no_grad():
            self.encoded = model.encode(source, present=present)

    def next(self, ids: Int[Tensor, "N T"]) -> Float[Tensor, "N V"]:
        return self.model.decode(ids, self.encoded, source_present=self.present, memory=self.memory)[:, -1]

    def select(self, rows: Int[Tensor, " M"]) -> None:
        self.memory.select(rows)
        self.encoded = self.encoded.index_select(0, rows)
        self.present = None if self.present is None else self.present.index_select(0, rows)
