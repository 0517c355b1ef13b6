"""Whether a model is the one that its config describes: files keep a config and weights, and no other changes.

A part that was exchanged (`block.attend.mix = Mixing(softcap=3.0)`) or a hyper-parameter that was set afterwards
(`model.norm.eps = 1e-3`) would be lost without a word. The model is compared with one freshly made from its config.
"""

from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from functools import partial
from pathlib import Path
from types import CellType, FunctionType
from typing import Any

from torch import Tensor, nn

from softlook.base.errors import WeightsError
from softlook.blocks.lora import PARTS, LoraLinear, lora_layers
from softlook.weights.hollow import hollow
from softlook.weights.known import MODELS

FREE = frozenset({"training", "backend"})
"""Attributes that do not change what a model computes."""
SHARDED = "FSDP"
"""What torch puts before the name of a class whose weights are sharded among devices."""


def name_of(model: nn.Module) -> str | None:
    """The name that checkpoints know a model by; None where they know none."""
    name = type(model).__name__.removeprefix(SHARDED)
    return name if name in MODELS and isinstance(model, MODELS[name].model) else None


def check_structure(model: nn.Module) -> str:
    """The name of a model that its config describes completely; an error names the first part that differs.

    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab=10, context=8, dim=16, depth=2, heads=2))
    >>> check_structure(model)
    'GPT'
    >>> model.blocks[1].attend.mix.softcap = 3.0
    >>> check_structure(model)
    Traceback (most recent call last):
    softlook.base.errors.WeightsError: blocks.1.attend.mix.softcap is 3.0, where the config makes it None...
    """
    name = name_of(model)
    if name is None:
        raise WeightsError(f"softlook keeps its own models; {type(model).__name__} is none of {', '.join(MODELS)}")
    made = hollow(lambda: MODELS[name].model(model.config), Path(name))
    difference = next(_differences(model, made, ""), None) or next(_tied_otherwise(model, made), None)
    if difference is not None:
        raise WeightsError(
            f"{difference}. A file keeps the config and the weights of this {name}, and would lose that. Undo it, or "
            "export with to_onnx, which writes what is computed."
        )
    return name


def _differences(one: nn.Module, made: nn.Module, path: str) -> Iterator[str]:
    where, of = path.removesuffix(".") or "the model", "where the config makes it"
    if isinstance(one, LoraLinear) and type(made) is nn.Linear:
        yield from _sizes(_plain(one), _tensors(made), path)
        return
    if not _same_type(one, made):
        yield f"{where} is a {type(one).__name__}, where the config makes it a {type(made).__name__}"
        return
    yield from (f"{path}{name} is set on the instance" for name in vars(one) if name in ("forward", "__call__"))
    own, wanted = _attributes(one), _attributes(made)
    for name, value in wanted.items():
        if not alike(own.get(name), value):
            yield f"{path}{name} is {own.get(name)!r:.80}, {of} {value!r:.80}"
    yield from _sizes(_tensors(one), _tensors(made), path)
    parts, expected = dict(one._modules), dict(made._modules)
    if parts.keys() != expected.keys():
        names = ", ".join(sorted(parts.keys() ^ expected.keys()))
        yield f"{where} has other parts than the config makes: {names:.200}"
        return
    for name, part in parts.items():
        other = expected[name]
        if part is None or other is None:
            if part is not other:
                yield f"{path}{name} is {type(part).__name__}, {of} {type(other).__name__}"
        else:
            yield from _differences(part, other, f"{path}{name}.")


def _sizes(own: Mapping[str, Any], wanted: Mapping[str, Any], path: str) -> Iterator[str]:
    for name in sorted(own.keys() | wanted.keys()):
        one, other = (None if side.get(name) is None else tuple(side[name].shape) for side in (own, wanted))
        if one != other:
            yield f"{path}{name} has the shape {one}, where the config makes it {other}"


def _tied_otherwise(one: nn.Module, made: nn.Module) -> Iterator[str]:
    """Weights that are one and the same in one of the two models, and not in the other."""
    renamed = {f"{name}.{PARTS[0]}": f"{name}.weight" for name in lora_layers(one)}
    own, wanted = _first_names(one, renamed), _first_names(made, {})
    for name, first in wanted.items():
        found = own.get(name, name)
        if found != first:
            yield f"{name} is {_owner(found, name)}, where the config makes it {_owner(first, name)}"


def _owner(first: str, name: str) -> str:
    return "a tensor of its own" if first == name else f"tied to {first}"


def _first_names(model: nn.Module, renamed: Mapping[str, str]) -> dict[str, str]:
    """Each parameter's name -> the first name that the same parameter goes by."""
    first: dict[int, str] = {}
    named = [(renamed.get(name, name), tensor) for name, tensor in model.named_parameters(remove_duplicate=False)]
    return {name: first.setdefault(id(tensor), name) for name, tensor in named if tensor.numel()}


def _same_type(one: nn.Module, made: nn.Module) -> bool:
    sharded = type(one).__name__ == f"{SHARDED}{type(made).__name__}"
    return type(one) is type(made) or (sharded and isinstance(one, type(made)))


def _attributes(module: nn.Module) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if not name.startswith("_") and name not in FREE}


def _tensors(module: nn.Module) -> dict[str, Tensor | None]:
    return {**module._parameters, **module._buffers}


def _plain(layer: LoraLinear) -> dict[str, Tensor | None]:
    return {"weight": layer.base, "bias": layer.bias}


def alike(one: Any, other: Any) -> bool:
    """Whether two hyper-parameters mean the same: by value, functions by their code and what they close over.

    >>> alike(lambda x: x + 1, lambda x: x + 2), alike((1.0, None), (1.0, None)), alike(nn.LayerNorm, nn.RMSNorm)
    (False, True, False)
    """
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    one, other = _content(one), _content(other)
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(alike(value, other[name]) for name, value in one.items())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    return one == other


def _content(value: Any) -> Any:
    """What two values of one type are compared by."""
    match value:
        case Tensor():
            return value.shape
        case FunctionType(__wrapped__=inner):
            return (inner,)
        case FunctionType():
            return value.__code__, value.__defaults__, value.__kwdefaults__, value.__closure__
        case CellType():
            return (value.cell_contents,)
        case partial():
            return value.func, value.args, value.keywords
        case _ if is_dataclass(value) or (type(value).__eq__ is object.__eq__ and hasattr(value, "__dict__")):
            return vars(value)
        case _:
            return value
