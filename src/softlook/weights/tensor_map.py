"""Tensor name maps between external checkpoints and softlook.

A rule has `target`, the name or names in softlook's model, and `source`, the name in the external checkpoint. `read`
converts on import, `write` on export.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from softlook.base.errors import WeightsError
from softlook.weights.meta import assign_tensors, check_shape, check_tensors_match, format_names, unique_tensors
from softlook.weights.tensor_files import check_values

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Rename:
    """The same tensor under another name; `transposed` for weights stored as (in, out)."""

    target: str
    source: str
    transposed: bool = False

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.target,)

    def read(self, source: Tensors) -> Tensors:
        return {self.target: _maybe_transpose(source[self.source], self.transposed)}

    def write(self, model: Tensors) -> Tensors:
        return {self.source: _maybe_transpose(model[self.target], self.transposed)}


@dataclass(frozen=True)
class Concat:
    """Several tensors concatenated along the first axis: equal in size, or of these `sizes`."""

    target: tuple[str, ...]
    source: str
    transposed: bool = False
    sizes: tuple[int, ...] | None = None

    @property
    def targets(self) -> tuple[str, ...]:
        return self.target

    def read(self, source: Tensors) -> Tensors:
        whole = _maybe_transpose(source[self.source], self.transposed)
        parts = whole.chunk(len(self.target)) if self.sizes is None else whole.split(self.sizes)
        return dict(zip(self.target, parts, strict=True))

    def write(self, model: Tensors) -> Tensors:
        return {self.source: _maybe_transpose(torch.cat([model[name] for name in self.target]), self.transposed)}


@dataclass(frozen=True)
class InterleavedHeads:
    """Several tensors interleaved by head: the first head of each, then the second of each."""

    target: tuple[str, ...]
    source: str
    heads: int

    @property
    def targets(self) -> tuple[str, ...]:
        return self.target

    def read(self, source: Tensors) -> Tensors:
        parts = source[self.source].unflatten(0, (self.heads, len(self.target), -1)).unbind(1)
        return {name: part.flatten(0, 1) for name, part in zip(self.target, parts, strict=True)}

    def write(self, model: Tensors) -> Tensors:
        parts = [model[name].unflatten(0, (self.heads, -1)) for name in self.target]
        return {self.source: torch.stack(parts, 1).flatten(0, 2)}


@dataclass(frozen=True)
class Copy:
    """A tensor stored under several names, each with its own copy of the data."""

    target: str
    source: str

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.target,)

    def read(self, source: Tensors) -> Tensors:
        return {self.target: source[self.source]}

    def write(self, model: Tensors) -> Tensors:
        return {self.source: model[self.target].clone()}


@dataclass(frozen=True)
class Unsqueeze:
    """A tensor stored with leading axes of size one."""

    target: str
    source: str
    axes: int = 1

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.target,)

    def read(self, source: Tensors) -> Tensors:
        return {self.target: source[self.source][(0,) * self.axes]}

    def write(self, model: Tensors) -> Tensors:
        return {self.source: model[self.target][(None,) * self.axes]}


TensorRule = Rename | Concat | InterleavedHeads | Copy | Unsqueeze


def rename_layer(target: str, source: str, *suffixes: str, transposed: bool = False) -> list[TensorRule]:
    """Rename rules for the tensors of a layer; default suffixes: weight and bias."""
    return [
        Rename(f"{target}.{kind}", f"{source}.{kind}", transposed and kind == "weight")
        for kind in (suffixes or ("weight", "bias"))
    ]


def load_mapped(
    model: nn.Module, source: Tensors, rules: Sequence[TensorRule], ignored: Iterable[str], path: Path
) -> None:
    """Load renamed tensors into a model. Missing, unexpected or invalid tensors raise WeightsError."""
    expected = {rule.source for rule in rules}
    missing = sorted(expected - source.keys())
    if missing:
        raise WeightsError(f"{path} lacks {format_names(missing)}, required by this architecture")
    extra = sorted(
        name for name in source.keys() - expected if not any(re.fullmatch(pattern, name) for pattern in ignored)
    )
    if extra:
        raise WeightsError(f"{path} holds {format_names(extra)}, unknown to this architecture")
    # Expected shapes in the file are those that export would write.
    slots = {name: slot.detach() for name, slot in unique_tensors(model).items()}
    empty = sorted(name for rule in rules for name in rule.targets if name not in slots)
    if empty:
        raise WeightsError(f"{path}: by the config, {format_names(empty)} would be empty")
    for rule in rules:
        for name, tensor in rule.write(slots).items():
            check_shape(name, tensor, source[name], path)
    check_values({name: source[name] for name in expected}, path)
    loaded: Tensors = {}
    for rule in rules:
        loaded |= rule.read(source)
    check_tensors_match(slots, loaded, path)
    assign_tensors(model, loaded)


def _maybe_transpose(tensor: Tensor, transposed: bool) -> Tensor:
    return tensor.mT if transposed else tensor
