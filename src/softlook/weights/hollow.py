"""Models that have shapes and no numbers yet, so that a file can be compared with them before any memory is taken."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from softlook.base.errors import WeightsError
from softlook.weights.files import check_usable

Made = TypeVar("Made", bound=nn.Module)
FAULTS = (ValueError, TypeError, RuntimeError, ArithmeticError, AssertionError, LookupError, MemoryError)
"""What a constructor answers to sizes that make no sense."""
DRAWING = (Tensor.normal_, Tensor.uniform_)
"""What draws numbers beside `nn.init`, in constructors of torch's and of softlook's."""
DEEPEST = 1024
"""Layers. Each one takes time to make, even without numbers."""


class Unfilled(TorchFunctionMode):
    """Numbers to begin with are not even asked for: torch would load its compiler to say that there are none."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        if getattr(func, "__module__", "") == nn.init.__name__ or func in DRAWING:
            filled = args[0] if args else named.get("tensor")
            if isinstance(filled, Tensor) and filled.is_meta:
                return filled
        return func(*args, **named)


def hollow(make: Callable[[], Made], where: Path) -> Made:
    """A model on the meta device, which costs nothing however large a config says it is.

    >>> model = hollow(lambda: nn.Linear(1_000_000, 1_000_000), Path("config.json"))
    >>> model.weight.shape, model.weight.is_meta
    (torch.Size([1000000, 1000000]), True)
    """
    try:
        with torch.device("meta"), Unfilled():
            return make()
    except WeightsError as fault:
        raise WeightsError(f"{where}: {fault}") from None
    except FAULTS as fault:
        raise WeightsError(f"{where} describes a model that cannot be built: {str(fault):.300}") from None


def check_depth(fields: Mapping[str, Any], where: Path) -> None:
    """A file may not make softlook build layers without end."""
    for name, value in fields.items():
        counts_layers = "layer" in name or "depth" in name
        if counts_layers and isinstance(value, int) and value > DEEPEST:
            raise WeightsError(f"{where}: {name} is {value:,}; softlook builds models of up to {DEEPEST:,} layers")


def fill(model: nn.Module, tensors: dict[str, Tensor], where: Path) -> None:
    """Put numbers into a model after every name, kind, shape and number was looked at: all of them, or none."""
    compare(own_tensors(model), tensors, where)
    check_usable(tensors, where)
    put(model, tensors)


def put(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Tensors that fit into a model, which takes their precision; where they differ, the one that holds them all."""
    kinds = {tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()}
    kind = kinds.pop() if len(kinds) == 1 else torch.float64 if torch.float64 in kinds else torch.float32
    _exchange(model, {id(place): _kept(place, tensors[name], kind) for name, place in own_tensors(model).items()})


def own_tensors(model: nn.Module) -> dict[str, Tensor]:
    """A model's parameters and kept buffers, each once (a tied matrix by its first name); an empty one has no place."""
    seen: set[int] = set()
    own: dict[str, Tensor] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen and tensor.numel():
            seen.add(id(tensor))
            own[name] = tensor
    return own


def listed(names: list[str], most: int = 4) -> str:
    """A few names, and how many more there are."""
    shown = ", ".join(f"{name!r:.200}" for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def check_shape(name: str, wanted: Tensor, tensor: Tensor, where: Path) -> None:
    """Is this tensor of the shape, and of the kind, that the config makes it?"""
    if wanted.shape != tensor.shape:
        raise WeightsError(
            f"{where}: {name!r:.200} should be {tuple(wanted.shape)} by the config, and is {tuple(tensor.shape)}. "
            "Config and weights are not of the same model."
        )
    if wanted.is_floating_point() != tensor.is_floating_point():
        raise WeightsError(f"{where}: {name!r:.200} holds {tensor.dtype} numbers, where {wanted.dtype} were expected")


def compare(places: dict[str, Tensor], tensors: dict[str, Tensor], where: Path) -> None:
    """Raise unless there is one tensor for each place, and it fits."""
    missing, extra = sorted(places.keys() - tensors.keys()), sorted(tensors.keys() - places.keys())
    if missing or extra:
        parts = (("it lacks", missing), ("it also holds", extra))
        raise WeightsError(f"{where} does not fit: " + "; ".join(f"{what} {listed(of)}" for what, of in parts if of))
    for name, place in places.items():
        check_shape(name, place, tensors[name], where)


def _kept(place: Tensor, tensor: Tensor, kind: torch.dtype) -> Tensor:
    """The numbers of `tensor` in the place itself, or in a new one where the place is hollow."""
    kind = kind if place.is_floating_point() else place.dtype
    # A copy: what was read from a file may still be that file, which somebody may write to.
    if not place.is_meta:
        place.data = torch.empty_like(place, dtype=kind, requires_grad=False).copy_(tensor)
        return place
    own = torch.empty(place.shape, dtype=kind).copy_(tensor)
    return nn.Parameter(own, place.requires_grad) if isinstance(place, nn.Parameter) else own


def complete(model: Made, make: Callable[[], Made]) -> Made:
    """What a model works out for itself, no file holds: where there is such a thing, it is taken from a twin."""
    missing = [name for name, buffer in model.named_buffers() if buffer.is_meta]
    if missing:
        with torch.random.fork_rng(devices=[]):  # the twin is as large as the file that just filled the model
            worked_out = dict(make().named_buffers())
        for name in missing:
            owner, _, last = name.rpartition(".")
            setattr(model.get_submodule(owner), last, worked_out[name])
    return model


def _exchange(model: nn.Module, new: dict[int, Tensor]) -> None:
    """In every place where an old tensor stood, so that what was one and the same stays so."""
    for module in model.modules():
        slots = [
            *module.named_parameters(recurse=False, remove_duplicate=False),
            *module.named_buffers(recurse=False, remove_duplicate=False),
        ]
        for name, old in slots:
            if old.is_meta and isinstance(old, nn.Parameter) and not old.numel():
                new.setdefault(id(old), _kept(old, torch.empty(old.shape), torch.float32))
            if id(old) in new:
                setattr(module, name, new[id(old)])
