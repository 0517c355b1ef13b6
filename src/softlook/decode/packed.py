"""Models made ready for saying many words on a CPU: a copy whose weights lie as its kernels want them.

The model itself stays as it was, and knows nothing of it. The copy shares no weights with it, and is for decoding: it
does not learn, is not saved, and does not follow, not even in part, when the model learns on.
"""

import copy
from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.blocks.attention import CrossAttention, Mixing, SelfAttention
from softlook.decode.lean import KeptPlaces, LeanCross, LeanSelf
from softlook.decode.lean_blocks import LeanBlock, can_be_lean
from softlook.embed.places import SinusoidalPlaces

Numbers = Literal["float32", "bfloat16"]
Make = Callable[[Tensor, Tensor | None], nn.Module]
"""Weight (M, C) and bias (M,) of a linear layer -> a layer that does the same, or nearly."""
LIKELY = 4
"""How many rows a layer will most often be asked about at once: as many as there are beams."""


class PackedLinear(nn.Module):
    """A linear layer whose weight is laid out for oneDNN once, rather than at every call.

    >>> layer, x = nn.Linear(64, 32), torch.randn(4, 64)
    >>> packed_layer = PackedLinear(layer.weight.detach(), layer.bias.detach())
    >>> torch.allclose(packed_layer(x), layer(x), atol=1e-5)
    True
    """

    def __init__(self, weight: Float[Tensor, "M C"], bias: Float[Tensor, " M"] | None, numbers: Numbers = "float32"):
        super().__init__()
        self.kind = torch.bfloat16 if numbers == "bfloat16" else torch.float32
        if self.kind == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            raise ConfigError("this CPU has no instructions for bfloat16 (AVX-512 or AVX-NE-CONVERT). Use float32.")
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.to(self.kind).contiguous(), LIKELY)
        self.bias = None if bias is None else bias.to(self.kind, copy=True)

    def forward(self, x: Float[Tensor, "*places C"]) -> Float[Tensor, "*places M"]:
        kind = x.dtype
        if kind == self.kind:
            return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return torch.ops.mkldnn._linear_pointwise(x.to(self.kind), self.weight, self.bias, "none", [], "").to(kind)


def packed(model: nn.Module, numbers: Numbers = "float32") -> nn.Module:
    """A copy for decoding on a CPU, with the same answers up to rounding; in "bfloat16", to about three digits.

    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab=10, context=8, dim=16, depth=1, heads=2)).eval()
    >>> ids = torch.tensor([[3, 1, 4]])
    >>> torch.allclose(packed(model)(ids), model(ids), atol=1e-5)
    True
    """
    return remade(model, lambda weight, bias: PackedLinear(weight, bias, numbers))


@torch.no_grad()
def remade(model: nn.Module, make: Make) -> nn.Module:
    """A copy of a model with its linear layers made anew, and lean attention where it is the plain one."""
    parameters = list(model.parameters())
    if any(parameter.device.type != "cpu" for parameter in parameters):
        raise ConfigError(f"weights are packed for the CPU; these lie on {parameters[0].device}. Move the model first")
    if any(parameter.dtype != torch.float32 for parameter in parameters):
        raise ConfigError(f"weights are packed from float32; {parameters[0].dtype} came. Use model.float()")
    made = copy.deepcopy(model, _read_once(model)).eval()
    if type(made) is nn.Linear:
        return make(made.weight, made.bias)
    _replace(made, make)
    return made


def _read_once(model: nn.Module) -> dict[int, Tensor]:
    """Weights that only linear layers have, which are made anew: to copy them first would be for nothing."""
    linear = [module for module in model.modules() if type(module) is nn.Linear]
    others = [module for module in model.modules() if type(module) is not nn.Linear]
    kept = {id(tensor) for module in others for tensor in module.parameters(recurse=False)}
    weights = (tensor for module in linear for tensor in module.parameters())
    return {id(tensor): tensor for tensor in weights if id(tensor) not in kept}


def _replace(module: nn.Module, make: Make) -> None:
    for name, child in module.named_children():
        new = _new(child, make)
        if new is None:
            _replace(child, make)
            new = LeanBlock(child) if can_be_lean(child) else child  # pyright: ignore[reportArgumentType]  (just asked)
        module.register_module(name, new)


def _new(module: nn.Module, make: Make) -> nn.Module | None:
    """What takes its place, if anything does. Only what is known to the last detail is replaced."""
    if type(module) is nn.Linear:
        return make(module.weight, module.bias)
    if type(module) is SelfAttention and _is_plain(module):
        joined = make(*_stacked(module.to_query, module.to_key, module.to_value))
        return LeanSelf(module, joined, make(module.to_out.weight, module.to_out.bias))
    if type(module) is CrossAttention and _is_plain(module):
        joined = make(*_stacked(module.to_key, module.to_value))
        layers = (make(layer.weight, layer.bias) for layer in (module.to_query, module.to_out))
        return LeanCross(module, joined, *layers)
    return KeptPlaces(module) if type(module) is SinusoidalPlaces else None


def _is_plain(module: SelfAttention | CrossAttention) -> bool:
    layers = (module.to_query, module.to_key, module.to_value, module.to_out)
    mix = module.mix
    return (
        all(type(layer) is nn.Linear for layer in layers)
        and type(mix) is Mixing
        and (mix.softcap, mix.sink, mix.score, mix.backend) == (None, None, None, "auto")
    )


def _stacked(*layers: nn.Linear) -> tuple[Tensor, Tensor | None]:
    """Several layers that read the same as one."""
    weight = torch.cat([layer.weight for layer in layers])
    return weight, None if layers[0].bias is None else torch.cat([layer.bias for layer in layers])
