"""`ScaledLinear`: a linear layer whose output is scaled and shifted, to train on standardized targets."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F


class ScaledLinear(nn.Module):
    """A linear layer whose output is scaled and shifted: scale * (W x + b) + shift.

    The output has the units of a regression's targets, while the weights are those of standardized targets, which
    gradient descent needs. Folding gives the equivalent plain layer.

    >>> layer = ScaledLinear(nn.Linear(8, 1), scale=100.0, shift=20.0)
    >>> x = torch.randn(2, 8)
    >>> torch.allclose(layer(x), layer.to_linear()(x), rtol=1e-4)
    True
    """

    def __init__(self, layer: nn.Linear, *, scale: float, shift: float) -> None:
        super().__init__()
        self.weight, self.bias, self.scale, self.shift = layer.weight, layer.bias, scale, shift

    def forward(self, x: Float[Tensor, "*B C"]) -> Float[Tensor, "*B M"]:
        return F.linear(x, self.weight, self.bias).float() * self.scale + self.shift

    def folded(
        self, weight: Float[Tensor, "M C"], bias: Float[Tensor, " M"]
    ) -> tuple[Float[Tensor, "M C"], Float[Tensor, " M"]]:
        """The weight and bias of the equivalent plain layer."""
        return weight * self.scale, bias * self.scale + self.shift

    def to_linear(self) -> nn.Linear:
        """The equivalent plain layer."""
        layer = nn.Linear(self.weight.shape[1], self.weight.shape[0], device="meta")
        weight, bias = self.folded(self.weight.detach(), self.bias.detach())
        layer.weight, layer.bias = nn.Parameter(weight), nn.Parameter(bias)
        return layer.train(self.training)

    def extra_repr(self) -> str:
        return f"{self.weight.shape[1]}, {self.weight.shape[0]}, scale={self.scale:g}, shift={self.shift:g}"


def scaled_layers(model: nn.Module) -> dict[str, ScaledLinear]:
    """The scaled layers, by name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, ScaledLinear)}


def fold_scaled_layers(model: nn.Module) -> None:
    """Replace all scaled layers by the equivalent plain ones, in place.

    >>> model = nn.Sequential(ScaledLinear(nn.Linear(8, 1), scale=2.0, shift=1.0))
    >>> fold_scaled_layers(model)
    >>> model
    Sequential(
      (0): Linear(in_features=8, out_features=1, bias=True)
    )
    """
    for name, layer in scaled_layers(model).items():
        model.set_submodule(name, layer.to_linear())


@torch.no_grad()
def folded_tensors(model: nn.Module, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The state dict of the model with plain layers, from that of the model with scaled ones."""
    folded = dict(tensors)
    for name, layer in scaled_layers(model).items():
        weight, bias = f"{name}.weight", f"{name}.bias"
        folded[weight], folded[bias] = layer.folded(folded[weight], folded[bias])
    return folded
