"""Building models on the meta device and loading checked tensors."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from softlook.base.errors import WeightsError
from softlook.weights.tensor_files import check_values

ModelT = TypeVar("ModelT", bound=nn.Module)
BUILD_ERRORS = (ValueError, TypeError, RuntimeError, ArithmeticError, AssertionError, LookupError, MemoryError)
"""Errors that constructors raise for invalid sizes."""
RANDOM_INITS = (Tensor.normal_, Tensor.uniform_)
"""Random initializers used in constructors besides `nn.init`."""
MAX_LAYERS = 1024
"""Maximum number of layers: building each takes time, even on the meta device."""


class SkipInit(TorchFunctionMode):
    """Skip the initialization of meta tensors, for which torch would load its compiler."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        if getattr(func, "__module__", "") == nn.init.__name__ or func in RANDOM_INITS:
            filled = args[0] if args else named.get("tensor")
            if isinstance(filled, Tensor) and filled.is_meta:
                return filled
        return func(*args, **named)


def build_on_meta(factory: Callable[[], ModelT], path: Path) -> ModelT:
    """Build a model on the meta device, without allocating memory for its parameters.

    >>> model = build_on_meta(lambda: nn.Linear(1_000_000, 1_000_000), Path("config.json"))
    >>> model.weight.shape, model.weight.is_meta
    (torch.Size([1000000, 1000000]), True)
    """
    try:
        with torch.device("meta"), SkipInit():
            return factory()
    except WeightsError as error:
        raise WeightsError(f"{path}: {error}") from None
    except BUILD_ERRORS as error:
        raise WeightsError(f"{path} describes a model that cannot be built: {str(error):.300}") from None


def check_depth(fields: Mapping[str, Any], path: Path) -> None:
    """Raise WeightsError if a config asks for more than MAX_LAYERS layers."""
    for name, value in fields.items():
        counts_layers = "layer" in name or "depth" in name
        if counts_layers and isinstance(value, int) and value > MAX_LAYERS:
            raise WeightsError(f"{path}: {name} is {value:,}; the maximum is {MAX_LAYERS:,} layers")


def load_checked(model: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    """Load tensors into a model after checking every name, dtype, shape and value; on error the model is unchanged."""
    check_tensors_match(unique_tensors(model), tensors, path)
    check_values(tensors, path)
    assign_tensors(model, tensors)


def assign_tensors(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Assign matching tensors to a model, which takes their dtype, or the widest where they differ."""
    dtypes = {tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()}
    dtype = dtypes.pop() if len(dtypes) == 1 else torch.float64 if torch.float64 in dtypes else torch.float32
    slots = unique_tensors(model)
    _replace_tensors(model, {id(slot): _materialize(slot, tensors[name], dtype) for name, slot in slots.items()})


def unique_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The parameters and persistent buffers of a model, tied ones once under their first name, empty ones left out."""
    seen: set[int] = set()
    unique: dict[str, Tensor] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen and tensor.numel():
            seen.add(id(tensor))
            unique[name] = tensor
    return unique


def format_names(names: list[str], max_shown: int = 4) -> str:
    """The first few names, and the number of others."""
    shown = ", ".join(f"{name!r:.200}" for name in names[:max_shown])
    return shown if len(names) <= max_shown else f"{shown} and {len(names) - max_shown} more"


def check_shape(name: str, expected: Tensor, tensor: Tensor, path: Path) -> None:
    """Raise WeightsError if a tensor has another shape than the config implies, or is not of floating point."""
    if expected.shape != tensor.shape:
        raise WeightsError(
            f"{path}: {name!r:.200} must have shape {tuple(expected.shape)} by the config, got {tuple(tensor.shape)}. "
            "Config and weights belong to different models."
        )
    if expected.is_floating_point() != tensor.is_floating_point():
        raise WeightsError(f"{path}: {name!r:.200} has dtype {tensor.dtype}, expected {expected.dtype}")


def check_tensors_match(expected: dict[str, Tensor], tensors: dict[str, Tensor], path: Path) -> None:
    """Raise WeightsError unless names, shapes and dtypes match."""
    missing, extra = sorted(expected.keys() - tensors.keys()), sorted(tensors.keys() - expected.keys())
    if missing or extra:
        problems = (("missing", missing), ("unexpected", extra))
        raise WeightsError(
            f"{path} does not match the model: "
            + "; ".join(f"{what} {format_names(names)}" for what, names in problems if names)
        )
    for name, tensor in expected.items():
        check_shape(name, tensor, tensors[name], path)


def _materialize(slot: Tensor, tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Copy a tensor into `slot`, or into a new tensor if `slot` is on the meta device."""
    dtype = dtype if slot.is_floating_point() else slot.dtype
    # A copy: a tensor read from a file may be a memory map of it.
    if not slot.is_meta:
        slot.data = torch.empty_like(slot, dtype=dtype, requires_grad=False).copy_(tensor)
        return slot
    copy = torch.empty(slot.shape, dtype=dtype).copy_(tensor)
    return nn.Parameter(copy, slot.requires_grad) if isinstance(slot, nn.Parameter) else copy


def fill_computed_buffers(model: ModelT, factory: Callable[[], ModelT]) -> ModelT:
    """Fill non-persistent buffers, which no file holds, from a second model built by `factory`."""
    missing = [name for name, buffer in model.named_buffers() if buffer.is_meta]
    if missing:
        with torch.random.fork_rng(devices=[]):  # no larger than the weights just loaded
            computed = dict(factory().named_buffers())
        for name in missing:
            owner, _, last = name.rpartition(".")
            setattr(model.get_submodule(owner), last, computed[name])
    return model


def _replace_tensors(model: nn.Module, new: dict[int, Tensor]) -> None:
    """Replace tensors by id in every module, so that tied tensors stay tied."""
    for module in model.modules():
        slots = [
            *module.named_parameters(recurse=False, remove_duplicate=False),
            *module.named_buffers(recurse=False, remove_duplicate=False),
        ]
        for name, old in slots:
            if old.is_meta and isinstance(old, nn.Parameter) and not old.numel():
                new.setdefault(id(old), _materialize(old, torch.empty(old.shape), torch.float32))
            if id(old) in new:
                setattr(module, name, new[id(old)])
