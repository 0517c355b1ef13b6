"""LoRA adapters in checkpoints."""

import ctypes
from hashlib import sha256
from typing import Any

from torch import Tensor, nn

from softlook.blocks.lora import lora_layers
from softlook.weights.meta import unique_tensors

ADAPTERS = "adapters.safetensors"


def lora_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The adapters by their names in the model; empty without LoRA."""
    tensors = unique_tensors(model)
    names = [f"{name}.{factor}" for name in lora_layers(model) for factor in ("lora_A", "lora_B")]
    return {name: tensors[name] for name in names}


def loadable_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The tensors that a checkpoint may change: all but the frozen base weights of LoRA layers, which it lacks."""
    base_weights = {f"{name}.base" for name in lora_layers(model)}
    return {name: tensor for name, tensor in unique_tensors(model).items() if name not in base_weights}


def merged_shapes(model: nn.Module) -> dict[str, Tensor]:
    """Tensors with the names and shapes of the model with merged adapters; their values have no meaning."""
    tensors, adapters = unique_tensors(model), lora_tensors(model)
    plain = {name: tensor for name, tensor in loadable_tensors(model).items() if name not in adapters}
    return plain | {f"{name}.weight": tensors[f"{name}.base"] for name in lora_layers(model)}


def lora_fingerprint(model: nn.Module) -> dict[str, Any]:
    """What a resumed run with LoRA must match: rank, alpha, dropout, and a digest of the base weights.

    >>> lora_fingerprint(nn.Linear(2, 2))
    {}
    """
    layers = list(lora_layers(model).values())
    if not layers:
        return {}
    base = sha256()
    for layer in layers:
        weight = layer.base.detach().cpu().contiguous()
        base.update((ctypes.c_ubyte * weight.nbytes).from_address(weight.data_ptr()))  # without a copy
    ranks, alphas, dropouts = ({m.rank for m in layers}, {m.alpha for m in layers}, {m.dropout.p for m in layers})
    lora = {"rank": sorted(ranks), "alpha": sorted(alphas), "dropout": sorted(dropouts), "base": base.hexdigest()}
    return {"lora": lora}
