"""Registry of models, and the check that a config describes a model.

A checkpoint stores a config and weights only. A replaced module or a hyper-parameter set after construction would be
lost silently, so a model is compared with one built from its config before it is saved.
"""

from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from functools import partial
from pathlib import Path
from types import CellType, FunctionType
from typing import Any

from torch import Tensor, nn

from softlook import models
from softlook.base.errors import WeightsError
from softlook.blocks.lora import LORA_TENSORS, LoraLinear, lora_layers
from softlook.blocks.scaled_linear import ScaledLinear
from softlook.weights.block_quantized import QuantizedLayer, can_quantize, quantized_layers
from softlook.weights.meta import build_on_meta

MODEL_NAMES = """
    Bert ConvolutionalLM Deberta FTTransformer FastWeightLM GPT Llama ModernBert RNNSearch SkipGram T5 T5Encoder
    TabTransformer TableTransformer Transformer TransformerXL ViT
"""
MODELS: dict[str, tuple[type[nn.Module], Any]] = {
    name: (getattr(models, name), getattr(models, f"{name}Config")) for name in MODEL_NAMES.split()
}
"""Name of a model -> its class and its config class."""
IGNORED_ATTRIBUTES = frozenset({"training", "backend"})
"""Attributes that do not change what a model computes."""
FSDP_PREFIX = "FSDP"
"""Prefix that torch's FSDP adds to class names."""


def registered_name(model: nn.Module) -> str | None:
    """The name of a model in MODELS; None if it is not registered."""
    name = type(model).__name__.removeprefix(FSDP_PREFIX)
    return name if name in MODELS and isinstance(model, MODELS[name][0]) else None


def check_structure(model: nn.Module) -> str:
    """Check that a config fully describes its model, and return the registered name; otherwise raise WeightsError.

    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=2, heads=2))
    >>> check_structure(model)
    'GPT'
    >>> model.blocks[1].attn.core.softcap = 3.0
    >>> check_structure(model)
    Traceback (most recent call last):
    softlook.base.errors.WeightsError: blocks.1.attn.core.softcap is 3.0, but the config gives None...
    """
    name = registered_name(model)
    if name is None:
        raise WeightsError(f"{type(model).__name__} is not a softlook model; supported: {', '.join(MODELS)}")
    built = build_on_meta(lambda: MODELS[name][0](model.config), Path(name))
    difference = next(_differences(model, built, ""), None) or next(_tying_differences(model, built), None)
    if difference is not None:
        raise WeightsError(
            f"{difference}. A checkpoint stores only the config and weights of this {name}, and would lose the change. "
            "Undo it, or export with to_onnx, which traces the computation."
        )
    return name


def _differences(one: nn.Module, built: nn.Module, path: str) -> Iterator[str]:
    where = path.removesuffix(".") or "the model"
    if isinstance(one, LoraLinear | ScaledLinear) and type(built) is nn.Linear:
        weight = one.base if isinstance(one, LoraLinear) else one.weight
        yield from _shape_differences({"weight": weight, "bias": one.bias}, _tensors(built), path)
        return
    if isinstance(one, QuantizedLayer) and can_quantize(built, one.block_format):
        bias = getattr(one, "bias", None)
        yield from _shape_differences({"weight": one, "bias": bias}, _tensors(built), path)
        return
    if not _same_type(one, built):
        yield f"{where} is a {type(one).__name__}, but the config gives a {type(built).__name__}"
        return
    yield from (f"{path}{name} is set on the instance" for name in vars(one) if name in ("forward", "__call__"))
    own = _attributes(one)
    for name, value in _attributes(built).items():
        if not equivalent(own.get(name), value):
            yield f"{path}{name} is {own.get(name)!r:.80}, but the config gives {value!r:.80}"
    yield from _shape_differences(_tensors(one), _tensors(built), path)
    parts, expected = dict(one._modules), dict(built._modules)
    if parts.keys() != expected.keys():
        names = ", ".join(sorted(parts.keys() ^ expected.keys()))
        yield f"{where} has other submodules than the config gives: {names:.200}"
        return
    for name, part in parts.items():
        other = expected[name]
        if part is None or other is None:
            if part is not other:
                yield f"{path}{name} is {type(part).__name__}, but the config gives {type(other).__name__}"
        else:
            yield from _differences(part, other, f"{path}{name}.")


def _shape_differences(own: Mapping[str, Any], expected: Mapping[str, Any], path: str) -> Iterator[str]:
    for name in sorted(own.keys() | expected.keys()):
        one, other = (None if side.get(name) is None else tuple(side[name].shape) for side in (own, expected))
        if one != other:
            yield f"{path}{name} has shape {one}, but the config gives {other}"


def _tying_differences(one: nn.Module, built: nn.Module) -> Iterator[str]:
    """Parameters that are tied in only one of the two models."""

    def owner(first: str, name: str) -> str:
        return "untied" if first == name else f"tied to {first}"

    renamed = {f"{name}.{LORA_TENSORS[0]}": f"{name}.weight" for name in lora_layers(one)}
    own, expected = _first_names(one, renamed), _first_names(built, {})
    for name, first in expected.items():
        found = own.get(name, name)
        if found != first:
            yield f"{name} is {owner(found, name)}, but the config gives {owner(first, name)}"


def _first_names(model: nn.Module, renamed: Mapping[str, str]) -> dict[str, str]:
    """Parameter name -> the first name of the same parameter."""
    first: dict[int, str] = {}
    named = [(renamed.get(name, name), tensor) for name, tensor in model.named_parameters(remove_duplicate=False)]
    named += [(f"{name}.weight", layer.blocks) for name, layer in quantized_layers(model).items()]
    return {name: first.setdefault(id(tensor), name) for name, tensor in named if tensor.numel()}


def _same_type(one: nn.Module, built: nn.Module) -> bool:
    sharded = type(one).__name__ == f"{FSDP_PREFIX}{type(built).__name__}"
    return type(one) is type(built) or (sharded and isinstance(one, type(built)))


def _attributes(module: nn.Module) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_") and name not in IGNORED_ATTRIBUTES
    }


def _tensors(module: nn.Module) -> dict[str, Tensor | None]:
    return {**module._parameters, **module._buffers}


def equivalent(one: Any, other: Any) -> bool:
    """Whether two hyper-parameters are equal: by value, functions by their code and closure.

    >>> equivalent(lambda x: x + 1, lambda x: x + 2), equivalent((1.0, None), (1.0, None))
    (False, True)
    """
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    one, other = _content(one), _content(other)
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(equivalent(value, other[name]) for name, value in one.items())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equivalent, one, other))
    return one == other


def _content(value: Any) -> Any:
    """The data by which two values of one type are compared."""
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
