"""LoRA: a model learns by thin detours around some of its layers, while all that it knew stays as it was.

A layer's answer W x becomes W x + s U D x, with D from its width down to a small rank and U up again; only D and U
learn. Afterwards W + s U D is a plain layer's weight, and nobody has to know how it was learned.
"""

import math
from collections import Counter
from collections.abc import Sequence
from difflib import get_close_matches

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from softlook.base.errors import ConfigError
from softlook.ops.dropping import Dropout

TARGETS = ("to_query", "to_value")
"""The layers that LoRA's authors found most worth it: what is asked for, and what is answered."""
PARTS = ("base", "down", "up")
"""What stands in a layer with a detour where a plain one has its weight."""


class LoraLinear(nn.Module):
    """A linear layer that stays as it is, and a detour of low rank that learns. It begins as the layer itself.

    Whoever reads `weight` sees what the layer does with its detour; what it did without stands in `base`.

    >>> layer = nn.Linear(8, 4)
    >>> x, adapted = torch.randn(2, 8), LoraLinear(layer, rank=2)
    >>> torch.equal(adapted(x), layer(x)), [name for name, p in adapted.named_parameters() if p.requires_grad]
    (True, ['down', 'up'])
    """

    def __init__(self, layer: nn.Linear, rank: int, *, alpha: float | None = None, dropout: float = 0.0) -> None:
        super().__init__()
        self.in_features, self.out_features, self.rank = layer.in_features, layer.out_features, rank
        self.alpha = 2.0 * rank if alpha is None else float(alpha)
        self.base, self.bias = layer.weight.requires_grad_(False), layer.bias
        if layer.bias is not None:
            layer.bias.requires_grad_(False)
        self.drop = Dropout(dropout)
        self.down = nn.Parameter(layer.weight.new_empty(rank, layer.in_features))
        self.up = nn.Parameter(layer.weight.new_zeros(layer.out_features, rank))
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))  # as a linear layer of torch's begins
        self.train(layer.training)

    @property
    def scale(self) -> float:
        """So that a larger rank does not mean larger steps."""
        return self.alpha / self.rank

    @property
    def weight(self) -> Float[Tensor, "M C"]:
        """The weight of the plain layer that does the same."""
        return self.straight(self.base, self.down, self.up)

    def straight(
        self, base: Float[Tensor, "M C"], down: Float[Tensor, "rank C"], up: Float[Tensor, "M rank"]
    ) -> Float[Tensor, "M C"]:
        """The detour taken into the weight."""
        return torch.addmm(base, up, down, alpha=self.scale)

    def forward(self, x: Float[Tensor, "*places C"]) -> Float[Tensor, "*places M"]:
        return F.linear(x, self.base, self.bias) + self.scale * F.linear(F.linear(self.drop(x), self.down), self.up)

    def plain(self) -> nn.Linear:
        """The plain layer that does the same."""
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
    targets: Sequence[str] = TARGETS,
    whole: Sequence[str] = (),
) -> None:
    """Freeze a model, and give some of its linear layers detours that learn. It answers as before.

    - `alpha`: how much a detour counts, divided by the rank; twice the rank where not told.
    - `dropout`: share of what goes into a detour that is dropped while training.
    - `targets`: layers by the end of their names, `"to_out"` or more exactly `"attend.to_out"`.
    - `whole`: parts that learn as a whole, by the beginning of their names: a head that starts from nothing.

    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab=10, context=8, dim=16, depth=2, heads=2))
    >>> add_lora(model, rank=4, targets=["to_query", "to_valu"])
    Traceback (most recent call last):
    softlook.base.errors.ConfigError: this model has no linear layer 'to_valu' to adapt. Did you mean 'to_value'? ...
    >>> add_lora(model, rank=4)
    >>> sum(p.numel() for p in model.parameters() if p.requires_grad)
    512
    """
    if rank < 1 or not 0 <= dropout < 1 or (alpha is not None and alpha <= 0):
        raise ConfigError(
            f"LoRA wants rank >= 1, alpha > 0 and 0 <= dropout < 1; rank {rank}, alpha {alpha}, dropout {dropout} came"
        )
    if lora_layers(model):
        raise ConfigError("this model has LoRA already. Call merge_lora first, and it is a plain model again.")
    names = _chosen(model, targets, whole)
    model.requires_grad_(False)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(_within(name, whole))
    layers = {id(layer): layer for layer in map(model.get_submodule, names)}
    _exchange(model, {key: LoraLinear(layer, rank, alpha=alpha, dropout=dropout) for key, layer in layers.items()})  # pyright: ignore[reportArgumentType]


def merge_lora(model: nn.Module) -> None:
    """Take every detour into the layer it leads around: a plain model again, of which all can learn.

    >>> model = nn.Sequential(nn.Linear(8, 4))
    >>> add_lora(model, targets=["0"])
    >>> merge_lora(model)
    >>> model
    Sequential(
      (0): Linear(in_features=8, out_features=4, bias=True)
    )
    """
    if layers := lora_layers(model):
        _exchange(model, {id(layer): layer.plain() for layer in layers.values()})
        model.requires_grad_(True)


def lora_layers(model: nn.Module) -> dict[str, LoraLinear]:
    """The layers with a detour, by name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, LoraLinear)}


@torch.no_grad()
def plain_tensors(model: nn.Module, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """What the plain model that does the same would hold under its own names, from what a model with detours holds.

    >>> model = nn.Sequential(nn.Linear(8, 4))
    >>> add_lora(model, targets=["0"])
    >>> sorted(model.state_dict()), sorted(plain_tensors(model, model.state_dict()))
    (['0.base', '0.bias', '0.down', '0.up'], ['0.bias', '0.weight'])
    """
    made = dict(tensors)
    for name, layer in lora_layers(model).items():
        made[f"{name}.weight"] = layer.straight(*(made.pop(f"{name}.{part}") for part in PARTS))
    return made


def _chosen(model: nn.Module, targets: Sequence[str], whole: Sequence[str]) -> list[str]:
    """The layers that are meant; a name that means none is an error, and so is a layer that does not stand alone."""
    for name in whole:
        if not any(_within(known, [name]) for known, _ in model.named_parameters()):
            raise ConfigError(f"this model has no part {name!r:.80} that could learn as a whole")
    layers = [n for n, m in model.named_modules() if type(m) is nn.Linear and n and not _within(f"{n}.weight", whole)]
    owners = Counter(id(p) for module in model.modules() for p in module.parameters(recurse=False))
    found: dict[str, None] = {}
    for target in targets:
        meant = [name for name in layers if f".{name}".endswith(f".{target}")]
        if not meant:
            raise ConfigError(_unknown(target, layers))
        found |= dict.fromkeys(meant)
    for name in found:
        if owners[id(model.get_parameter(f"{name}.weight"))] > 1:
            raise ConfigError(f"{name!r:.80} shares its weight with another part, and cannot be adapted by itself")
    if not found:
        raise ConfigError("LoRA wants layers to adapt: targets is empty")
    return list(found)


def _unknown(target: str, layers: Sequence[str]) -> str:
    known = sorted({name.rpartition(".")[2] for name in layers})
    close = get_close_matches(target, [*known, *layers], n=1, cutoff=0.6)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    has = f" It has {', '.join(known):.200}." if known else " It has none at all."
    return f"this model has no linear layer {target!r:.80} to adapt.{hint}{has}"


def _within(name: str, parts: Sequence[str]) -> bool:
    return any(f"{name}.".startswith(f"{part}.") for part in parts)


def _exchange(model: nn.Module, new: dict[int, nn.Module]) -> None:
    """In every place where an old layer stood, so that what was one and the same stays so."""
    for module in list(model.modules()):
        for name, child in module._modules.items():  # each, where named_children gives one and the same only once
            if id(child) in new:
                setattr(module, name, new[id(child)])
