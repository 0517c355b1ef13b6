"""Models as something that can be asked for the next word. What is remembered between two words belongs here."""

from inspect import signature
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from softlook.blocks.memory import Memory
from softlook.ops.masks import padding


@runtime_checkable
class Speaker(Protocol):
    """A batch of sequences under way."""

    @property
    def device(self) -> torch.device:
        """Where it wants its ids."""
        ...

    @property
    def context(self) -> int | None:
        """How many words a sequence may have, those it began with included; None where there is no end to them."""
        ...

    def next(self, ids: Int[Tensor, "N T"], lengths: Int[Tensor, " N"] | None = None) -> Float[Tensor, "N V"]:
        """Take in what is new, one row per sequence, and score what may come after it.

        Where rows are not equally long, they are filled up on the left, with any id: `lengths` says how many of the
        last ids count. Only the first call of all may have them.
        """
        ...

    def select(self, rows: Int[Tensor, " M"]) -> None:
        """Go on with these sequences, in this order; one may come several times or not at all."""
        ...


@runtime_checkable
class Rewinding(Speaker, Protocol):
    """A speaker that can take words back."""

    def read(self, ids: Int[Tensor, "N T"], lengths: Int[Tensor, " N"] | None = None) -> Float[Tensor, "N T V"]:
        """Take in what is new, and score what may come after each word of it."""
        ...

    def forget(self, count: int) -> None:
        """As though the last so many words had not come."""
        ...


class Filling:
    """How rows were filled up on the left when they began: what hides that, and where the words behind it stand."""

    def __init__(self) -> None:
        self.count: Int[Tensor, " N"] | None = None
        """Places of each row that are filled up; None where there are none."""

    def begin(self, ids: Int[Tensor, "N T"], lengths: Int[Tensor, " N"] | None) -> None:
        self.count = None if lengths is None else ids.shape[1] - lengths.to(ids.device)

    def arguments(self, start: int, new: int, *, positions: bool, keys: int | None = None) -> dict[str, Any]:
        """What to tell a model that reads `new` words after `start` others, the last `keys` of which it sees."""
        if self.count is None:
            return {}
        stop = start + new
        keys = stop if keys is None else keys
        told: dict[str, Any] = {"mask": padding((stop - self.count).clamp(max=keys), left_of=keys)}
        if positions:
            places = torch.arange(start, stop, device=self.count.device)
            told["positions"] = (places - self.count[:, None]).clamp(min=0)
        return told

    def select(self, rows: Int[Tensor, " M"]) -> None:
        self.count = None if self.count is None else self.count.index_select(0, rows)


class Continuing:
    """A decoder-only model that goes on with what it is given; with a `label` for each row, where it has some."""

    def __init__(self, model: Any, memory: Memory | None = None, label: Int[Tensor, " N"] | None = None) -> None:
        self.model, self.memory, self.filling = model, Memory() if memory is None else memory, Filling()
        self.label, self.device, self.context = label, device_of(model), model.config.context
        self.last = {"last": 1} if "last" in signature(model.forward).parameters else {}
        """How to ask for the logits of the last position alone: those of a whole prompt may take gigabytes."""

    def read(self, ids: Int[Tensor, "N T"], lengths: Int[Tensor, " N"] | None = None) -> Float[Tensor, "N T V"]:
        return self._read(ids, lengths)

    def next(self, ids: Int[Tensor, "N T"], lengths: Int[Tensor, " N"] | None = None) -> Float[Tensor, "N V"]:
        return self._read(ids, lengths, **self.last)[:, -1]

    def _read(self, ids: Tensor, lengths: Tensor | None, **more: int) -> Tensor:
        if self.memory.length == 0:
            self.filling.begin(ids, lengths)
        told = self.filling.arguments(self.memory.length, ids.shape[1], positions=True)
        told |= {} if self.label is None else {"label": self.label}
        return self.model(ids, memory=self.memory, **told, **more)

    def select(self, rows: Int[Tensor, " M"]) -> None:
        self.memory.select(rows)
        self.filling.select(rows)
        self.label = None if self.label is None else self.label.index_select(0, rows)

    def forget(self, count: int) -> None:
        self.memory.forget(count)


class Translating:
    """An encoder-decoder model that says what it has read in other words. The source is read once."""

    def __init__(self, model: Any, source: Int[Tensor, "N S"], present: Bool[Tensor, "N S"] | None = None) -> None:
        self.model, self.memory, self.present, self.filling = model, Memory(), present, Filling()
        self.device, self.context = device_of(model), context_of(model)
        self.places = "positions" in signature(model.decode).parameters
        with torch.no_grad():
            self.encoded = model.encode(source, present=present)

    def read(self, ids: Int[Tensor, "N T"], lengths: Int[Tensor, " N"] | None = None) -> Float[Tensor, "N T V"]:
        if self.memory.length == 0:
            self.filling.begin(ids, lengths)
        told = self.filling.arguments(self.memory.length, ids.shape[1], positions=self.places)
        return self.model.decode(ids, self.encoded, source_present=self.present, memory=self.memory, **told)

    def next(self, ids: Int[Tensor, "N T"], lengths: Int[Tensor, " N"] | None = None) -> Float[Tensor, "N V"]:
        return self.read(ids, lengths)[:, -1]

    def select(self, rows: Int[Tensor, " M"]) -> None:
        self.memory.select(rows)
        self.filling.select(rows)
        self.encoded = self.encoded.index_select(0, rows)
        self.present = None if self.present is None else self.present.index_select(0, rows)

    def forget(self, count: int) -> None:
        self.memory.forget(count)


def device_of(model: Any) -> torch.device:
    """Where the first of its weights lies."""
    return next(model.parameters()).device


def context_of(model: Any) -> int | None:
    """The longest target: only learned positions come to an end."""
    return model.config.context if getattr(model.config, "places", None) == "learned" else None
