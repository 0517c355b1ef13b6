"""Other people's names for the same tensors, read in one direction and written in the other."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from softlook.base.errors import WeightsError

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Same:
    """One of ours is one of theirs; on its side where theirs is stored (in, out)."""

    ours: str
    theirs: str
    on_its_side: bool = False

    def read(self, theirs: Tensors) -> Tensors:
        return {self.ours: _turned(theirs[self.theirs], self.on_its_side)}

    def write(self, ours: Tensors) -> Tensors:
        return {self.theirs: _turned(ours[self.ours], self.on_its_side)}


@dataclass(frozen=True)
class Stacked:
    """Several of ours, equally large, stand one below the other in one of theirs."""

    ours: tuple[str, ...]
    theirs: str
    on_its_side: bool = False

    def read(self, theirs: Tensors) -> Tensors:
        parts = _turned(theirs[self.theirs], self.on_its_side).chunk(len(self.ours))
        return dict(zip(self.ours, parts, strict=True))

    def write(self, ours: Tensors) -> Tensors:
        return {self.theirs: _turned(torch.cat([ours[name] for name in self.ours]), self.on_its_side)}


Rule = Same | Stacked


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
    ours: Tensors = {}
    for rule in rules:
        ours |= rule.read(theirs)
    fill(model, ours, where)


def fill(model: nn.Module, tensors: Tensors, where: Path) -> None:
    """Copy tensors into a model after every name and every shape was compared."""
    places = own_tensors(model)
    missing, extra = sorted(places.keys() - tensors.keys()), sorted(tensors.keys() - places.keys())
    if missing or extra:
        raise WeightsError(
            f"{where} does not fit: "
            + "; ".join(
                f"{what} {listed(names)}" for what, names in (("it lacks", missing), ("it also holds", extra)) if names
            )
        )
    for name, place in places.items():
        if place.shape != tensors[name].shape:
            raise WeightsError(
                f"{where}: {name!r} should be {tuple(place.shape)} by the config, and is {tuple(tensors[name].shape)}"
            )
    kinds = {tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()}
    if len(kinds) == 1:
        model.to(kinds.pop())  # in the precision it was stored in
    with torch.no_grad():
        for name, place in own_tensors(model).items():
            place.copy_(tensors[name])


def own_tensors(model: nn.Module) -> Tensors:
    """A model's parameters and kept buffers, each once (a tied matrix by its first name); an empty one has no place."""
    seen: set[int] = set()
    own: Tensors = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen and tensor.numel():
            seen.add(id(tensor))
            own[name] = tensor
    return own


def listed(names: Sequence[str], most: int = 4) -> str:
    """A few names, and how many more there are."""
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def _turned(tensor: Tensor, turn: bool) -> Tensor:
    return tensor.mT if turn else tensor
