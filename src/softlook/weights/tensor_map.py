"""Tensor name maps between external checkpoints and softlook.

A rule has `target`, the name or names in softlook's model, and `source`, the name in the external checkpoint. `read`
converts on import, `write` on export.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
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

    def read(self, source: Tensors) -> Tensors:
        parts = source[self.source].unflatten(0, (self.heads, len(self.target), -1)).unbind(1)
        return {name: part.flatten(0, 1) for name, part in zip(self.target, parts, strict=True)}

    def write(self, model: Tensors) -> Tensors:
        parts = [model[name].unflatten(0, (self.heads, -1)) for name in self.target]
        return {self.source: torch.stack(parts, 1).flatten(0, 2)}


@dataclass(frozen=True)
class Unsqueeze:
    """A tensor stored with leading axes of size one."""

    target: str
    source: str
    axes: int = 1

    def read(self, source: Tensors) -> Tensors:
        return {self.target: source[self.source][(0,) * self.axes]}

    def write(self, model: Tensors) -> Tensors:
        return {self.source: model[self.target][(None,) * self.axes]}


TensorRule = Rename | Concat | InterleavedHeads | Unsqueeze


def rename_layer(target: str, source: str, *suffixes: str, transposed: bool = False) -> list[TensorRule]:
    """Rename rules for the tensors of a layer; default suffixes: weight and bias."""
    return [
        Rename(f"{target}.{kind}", f"{source}.{kind}", transposed and kind == "weight")
        for kind in (suffixes or ("weight", "bias"))
    ]


def rename_layers(target: str, source: str, names: Mapping[str, str], *suffixes: str) -> list[TensorRule]:
    """`rename_layer` for several layers: `names` maps what follows `target` to what follows `source`."""
    return [
        rule for name, other in names.items() for rule in rename_layer(f"{target}{name}", f"{source}{other}", *suffixes)
    ]


def rename_blocks(
    depth: int, source: str, names: Mapping[str, str], *suffixes: str, target: str = "blocks"
) -> list[TensorRule]:
    """`rename_layers` for every block of a stack."""
    return [rule for i in range(depth) for rule in rename_layers(f"{target}.{i}.", f"{source}.{i}.", names, *suffixes)]


def qkv_names(block: str, kind: str = "weight") -> tuple[str, ...]:
    """Tensor names of the query, key and value projections of a block, which other formats store as one tensor."""
    return tuple(f"{block}.attn.to_{part}.{kind}" for part in ("query", "key", "value"))


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
    targets = [name for rule in rules for name in ([rule.target] if isinstance(rule.target, str) else rule.target)]
    empty = sorted(name for name in targets if name not in slots)
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
