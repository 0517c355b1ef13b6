"""Other people's names for the same tensors, read in one direction and written in the other."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from softlook.base.errors import WeightsError
from softlook.weights.files import check_usable
from softlook.weights.hollow import check_shape, compare, listed, own_tensors, put

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Same:
    """One of ours is one of theirs; on its side where theirs is stored (in, out)."""

    ours: str
    theirs: str
    on_its_side: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return (self.ours,)

    def read(self, theirs: Tensors) -> Tensors:
        return {self.ours: _turned(theirs[self.theirs], self.on_its_side)}

    def write(self, ours: Tensors) -> Tensors:
        return {self.theirs: _turned(ours[self.ours], self.on_its_side)}


@dataclass(frozen=True)
class Stacked:
    """Several of ours stand one below the other in one of theirs: equally large, or of these `sizes`."""

    ours: tuple[str, ...]
    theirs: str
    on_its_side: bool = False
    sizes: tuple[int, ...] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return self.ours

    def read(self, theirs: Tensors) -> Tensors:
        whole = _turned(theirs[self.theirs], self.on_its_side)
        parts = whole.chunk(len(self.ours)) if self.sizes is None else whole.split(self.sizes)
        return dict(zip(self.ours, parts, strict=True))

    def write(self, ours: Tensors) -> Tensors:
        return {self.theirs: _turned(torch.cat([ours[name] for name in self.ours]), self.on_its_side)}


@dataclass(frozen=True)
class Interleaved:
    """Several of ours in one of theirs, head by head: the first head of each, then the second of each."""

    ours: tuple[str, ...]
    theirs: str
    heads: int

    @property
    def names(self) -> tuple[str, ...]:
        return self.ours

    def read(self, theirs: Tensors) -> Tensors:
        parts = theirs[self.theirs].unflatten(0, (self.heads, len(self.ours), -1)).unbind(1)
        return {name: part.flatten(0, 1) for name, part in zip(self.ours, parts, strict=True)}

    def write(self, ours: Tensors) -> Tensors:
        parts = [ours[name].unflatten(0, (self.heads, -1)) for name in self.ours]
        return {self.theirs: torch.stack(parts, 1).flatten(0, 2)}


@dataclass(frozen=True)
class Copy:
    """One of ours is several of theirs, this one among them: each gets numbers of its own, as a file wants it."""

    ours: str
    theirs: str

    @property
    def names(self) -> tuple[str, ...]:
        return (self.ours,)

    def read(self, theirs: Tensors) -> Tensors:
        return {self.ours: theirs[self.theirs]}

    def write(self, ours: Tensors) -> Tensors:
        return {self.theirs: ours[self.ours].clone()}


@dataclass(frozen=True)
class Row:
    """A vector of ours is the only row of a matrix of theirs; or theirs has even more axes of length one in front."""

    ours: str
    theirs: str
    axes: int = 1

    @property
    def names(self) -> tuple[str, ...]:
        return (self.ours,)

    def read(self, theirs: Tensors) -> Tensors:
        return {self.ours: theirs[self.theirs][(0,) * self.axes]}

    def write(self, ours: Tensors) -> Tensors:
        return {self.theirs: ours[self.ours][(None,) * self.axes]}


Rule = Same | Stacked | Interleaved | Copy | Row


def layer(ours: str, theirs: str, *kinds: str, on_its_side: bool = False) -> list[Rule]:
    """The same rule for a layer's tensors: weight and bias, where not told otherwise."""
    return [
        Same(f"{ours}.{kind}", f"{theirs}.{kind}", on_its_side and kind == "weight")
        for kind in (kinds or ("weight", "bias"))
    ]


def read_into(model: nn.Module, theirs: Tensors, rules: Sequence[Rule], ignored: Iterable[str], where: Path) -> None:
    """Fill a model with renamed tensors: all of them, and nothing else, or an error and an untouched model."""
    wanted = {rule.theirs for rule in rules}
    missing = sorted(wanted - theirs.keys())
    if missing:
        raise WeightsError(f"{where} lacks {listed(missing)}, which this architecture needs")
    extra = sorted(name for name in theirs.keys() - wanted if not any(re.fullmatch(rule, name) for rule in ignored))
    if extra:
        raise WeightsError(f"{where} holds {listed(extra)}, which this architecture has no place for")
    # What we would write is what we expect to read: each rule says it of its own tensor.
    places = {name: place.detach() for name, place in own_tensors(model).items()}
    empty = sorted(name for rule in rules for name in rule.names if name not in places)
    if empty:
        raise WeightsError(f"{where}: by the config, {listed(empty)} would hold no number at all")
    for rule in rules:
        for name, place in rule.write(places).items():
            check_shape(name, place, theirs[name], where)
    check_usable({name: theirs[name] for name in wanted}, where)
    ours: Tensors = {}
    for rule in rules:
        ours |= rule.read(theirs)
    compare(places, ours, where)
    put(model, ours)


def _turned(tensor: Tensor, turn: bool) -> Tensor:
    return tensor.mT if turn else tensor
