"""LoRA: low-rank adapters of linear layers."""

import math
from collections import Counter
from collections.abc import Sequence
from difflib import get_close_matches

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from softlook.base.errors import ConfigError
from softlook.ops.dropout import Dropout

DEFAULT_TARGET_MODULES = ("to_query", "to_value")
"""The layers that LoRA's authors recommend."""
LORA_TENSORS = ("base", "lora_A", "lora_B")
"""The tensors of an adapted layer in place of `weight`."""


class LoraLinear(nn.Module):
    """LoRA (Hu et al. 2022): a frozen linear layer plus a trainable low-rank update, W x + scale * B A x.

    B starts at zero, so the layer computes what it did. `weight` is the merged weight, `base` the frozen one.

    >>> layer = nn.Linear(8, 4)
    >>> x, adapted = torch.randn(2, 8), LoraLinear(layer, rank=2)
    >>> torch.equal(adapted(x), layer(x)), [name for name, p in adapted.named_parameters() if p.requires_grad]
    (True, ['lora_A', 'lora_B'])
    """

    def __init__(self, layer: nn.Linear, rank: int, *, alpha: float | None = None, dropout: float = 0.0) -> None:
        super().__init__()
        self.in_features, self.out_features, self.rank = layer.in_features, layer.out_features, rank
        self.alpha = 2.0 * rank if alpha is None else float(alpha)
        self.base, self.bias = layer.weight.requires_grad_(False), layer.bias
        if layer.bias is not None:
            layer.bias.requires_grad_(False)
        self.dropout = Dropout(dropout)
        self.lora_A = nn.Parameter(layer.weight.new_empty(rank, layer.in_features))
        self.lora_B = nn.Parameter(layer.weight.new_zeros(layer.out_features, rank))
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))  # as nn.Linear
        self.train(layer.training)

    @property
    def scale(self) -> float:
        """alpha / rank: a larger rank does not mean larger steps."""
        return self.alpha / self.rank

    @property
    def weight(self) -> Float[Tensor, "M C"]:
        """The weight of the equivalent linear layer."""
        return self.merged_weight(self.base, self.lora_A, self.lora_B)

    def merged_weight(
        self, base: Float[Tensor, "M C"], lora_A: Float[Tensor, "rank C"], lora_B: Float[Tensor, "M rank"]
    ) -> Float[Tensor, "M C"]:
        """base + scale * B A."""
        return torch.addmm(base, lora_B, lora_A, alpha=self.scale)

    def forward(self, x: Float[Tensor, "*B C"]) -> Float[Tensor, "*B M"]:
        update = F.linear(F.linear(self.dropout(x), self.lora_A), self.lora_B)
        return F.linear(x, self.base, self.bias) + self.scale * update

    def to_linear(self) -> nn.Linear:
        """The equivalent linear layer."""
        layer = nn.Linear(self.in_features, self.out_features, bias=self.bias is not None, device="meta")
        layer.weight = nn.Parameter(self.weight.detach())
        layer.bias = self.bias
        return layer.train(self.training)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, rank={self.rank}, alpha={self.alpha:g}"


def add_lora(
    model: nn.Module,
    rank: int = 8,
    *,
    alpha: float | None = None,
    dropout: float = 0.0,
    target_modules: Sequence[str] = DEFAULT_TARGET_MODULES,
    modules_to_save: Sequence[str] = (),
) -> None:
    """Freeze a model and add LoRA adapters to some of its linear layers, in place.

    - `alpha`: scaling of the update, divided by the rank; default: 2 * rank.
    - `dropout`: dropout probability of the input of the adapters.
    - `target_modules`: layers by the end of their names, `"to_out"` or `"attn.to_out"`.
    - `modules_to_save`: modules that are trained in full, by the start of their names: a new head.

    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=2, heads=2))
    >>> add_lora(model, rank=4, target_modules=["to_query", "to_valu"])
    Traceback (most recent call last):
    softlook.base.errors.ConfigError: the model has no linear layer 'to_valu'. Did you mean 'to_value'? ...
    >>> add_lora(model, rank=4)
    >>> sum(p.numel() for p in model.parameters() if p.requires_grad)
    512
    """
    if rank < 1 or not 0 <= dropout < 1 or (alpha is not None and alpha <= 0):
        raise ConfigError(
            "LoRA requires rank >= 1, alpha > 0 and 0 <= dropout < 1, "
            f"got rank {rank}, alpha {alpha}, dropout {dropout}"
        )
    if lora_layers(model):
        raise ConfigError("the model already has LoRA adapters. Call merge_lora first.")
    names = _find_targets(model, target_modules, modules_to_save)
    model.requires_grad_(False)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(_starts_with(name, modules_to_save))
    layers = {id(layer): layer for layer in map(model.get_submodule, names)}
    _replace_modules(
        model,
        {key: LoraLinear(layer, rank, alpha=alpha, dropout=dropout) for key, layer in layers.items()},  # pyright: ignore[reportArgumentType]
    )


def merge_lora(model: nn.Module) -> None:
    """Merge all adapters into their layers, in place, and make the whole model trainable.

    >>> model = nn.Sequential(nn.Linear(8, 4))
    >>> add_lora(model, target_modules=["0"])
    >>> merge_lora(model)
    >>> model
    Sequential(
      (0): Linear(in_features=8, out_features=4, bias=True)
    )
    """
    if layers := lora_layers(model):
        _replace_modules(model, {id(layer): layer.to_linear() for layer in layers.values()})
        model.requires_grad_(True)


def lora_layers(model: nn.Module) -> dict[str, LoraLinear]:
    """The adapted layers, by name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, LoraLinear)}


@torch.no_grad()
def merged_tensors(model: nn.Module, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The state dict of the merged model, from that of a model with adapters.

    >>> model = nn.Sequential(nn.Linear(8, 4))
    >>> add_lora(model, target_modules=["0"])
    >>> sorted(model.state_dict()), sorted(merged_tensors(model, model.state_dict()))
    (['0.base', '0.bias', '0.lora_A', '0.lora_B'], ['0.bias', '0.weight'])
    """
    merged = dict(tensors)
    for name, layer in lora_layers(model).items():
        merged[f"{name}.weight"] = layer.merged_weight(*(merged.pop(f"{name}.{tensor}") for tensor in LORA_TENSORS))
    return merged


def _find_targets(model: nn.Module, targets: Sequence[str], modules_to_save: Sequence[str]) -> list[str]:
    """Names of the target layers; raises an error for a target that matches none, and for tied weights."""
    for name in modules_to_save:
        if not any(_starts_with(parameter, [name]) for parameter, _ in model.named_parameters()):
            raise ConfigError(f"the model has no module {name!r:.80} to train in full")
    layers = [
        name
        for name, module in model.named_modules()
        if type(module) is nn.Linear and name and not _starts_with(f"{name}.weight", modules_to_save)
    ]
    owners = Counter(id(p) for module in model.modules() for p in module.parameters(recurse=False))
    found: dict[str, None] = {}
    for target in targets:
        matches = [name for name in layers if f".{name}".endswith(f".{target}")]
        if not matches:
            raise ConfigError(_no_match(target, layers))
        found |= dict.fromkeys(matches)
    for name in found:
        if owners[id(model.get_parameter(f"{name}.weight"))] > 1:
            raise ConfigError(f"{name!r:.80} shares its weight with another module and cannot be adapted by itself")
    if not found:
        raise ConfigError("target_modules is empty")
    return list(found)


def _no_match(target: str, layers: Sequence[str]) -> str:
    known = sorted({name.rpartition(".")[2] for name in layers})
    close = get_close_matches(target, [*known, *layers], n=1, cutoff=0.6)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    has = f" It has {', '.join(known):.200}." if known else " It has none."
    return f"the model has no linear layer {target!r:.80}.{hint}{has}"


def _starts_with(name: str, prefixes: Sequence[str]) -> bool:
    return any(f"{name}.".startswith(f"{prefix}.") for prefix in prefixes)


def _replace_modules(model: nn.Module, new: dict[int, nn.Module]) -> None:
    """Replace modules by id wherever they occur, so that shared modules stay shared."""
    for module in list(model.modules()):
        for name, child in module._modules.items():  # named_children yields a shared module only once
            if id(child) in new:
                setattr(module, name, new[id(child)])
