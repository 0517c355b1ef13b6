"""A model that learns by adapters (LoRA): what of it changes, what does not, and how a run knows the latter again."""

import ctypes
from hashlib import sha256
from typing import Any

from torch import Tensor, nn

from softlook.blocks.lora import lora_layers
from softlook.weights.hollow import own_tensors

ADAPTERS = "adapters.safetensors"


def detours(model: nn.Module) -> dict[str, Tensor]:
    """The adapters alone, by the names that they have in the model; none where there are none."""
    own = own_tensors(model)
    return {f"{name}.{part}": own[f"{name}.{part}"] for name in lora_layers(model) for part in ("down", "up")}


def changing(model: nn.Module) -> dict[str, Tensor]:
    """What a checkpoint may change: all but the weights that adapters lead around, which no checkpoint holds."""
    around = {f"{name}.base" for name in lora_layers(model)}
    return {name: tensor for name, tensor in own_tensors(model).items() if name not in around}


def plain_places(model: nn.Module) -> dict[str, Tensor]:
    """Tensors with the names and the shapes that the plain model has which does the same, whatever is in them."""
    own, layers = own_tensors(model), lora_layers(model)
    plain = {name: tensor for name, tensor in changing(model).items() if name not in detours(model)}
    return plain | {f"{name}.weight": own[f"{name}.base"] for name in layers}


def foundation(model: nn.Module) -> dict[str, Any]:
    """What a run with adapters has to find again to go on: how they work, and a digest of what they lead around.

    >>> foundation(nn.Linear(2, 2))
    {}
    """
    layers = list(lora_layers(model).values())
    if not layers:
        return {}
    base = sha256()
    for layer in layers:
        here = layer.base.detach().cpu().contiguous()
        base.update((ctypes.c_ubyte * here.nbytes).from_address(here.data_ptr()))  # as it lies there, without a copy
    ranks, alphas, dropouts = ({m.rank for m in layers}, {m.alpha for m in layers}, {m.drop.p for m in layers})
    told = {"rank": sorted(ranks), "alpha": sorted(alphas), "dropout": sorted(dropouts), "base": base.hexdigest()}
    return {"lora": told}
