"""How a layer is joined to the path around it. The path is the identity, so that positions and gradients survive.

Each arrangement is a module that is handed a layer when it is called: `around(x, layer)`.
"""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn

from softlook.ops.dropping import Dropout

Layer = Callable[[Tensor], Tensor]


class PostNorm(nn.Module):
    """norm(x + layer(x)), as first published. It wants a warm-up."""

    def __init__(self, norm: nn.Module, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm, self.drop = norm, Dropout(dropout)

    def forward(self, x: Float[Tensor, "B T C"], layer: Layer) -> Float[Tensor, "B T C"]:
        return self.norm(x + self.drop(layer(x)))


class PreNorm(nn.Module):
    """x + layer(norm(x)): stable from the first step. The model puts one more norm at the end."""

    def __init__(self, norm: nn.Module, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm, self.drop = norm, Dropout(dropout)

    def branch(self, x: Float[Tensor, "B T C"], layer: Layer) -> Float[Tensor, "B T C"]:
        """What is added to x."""
        return self.drop(layer(self.norm(x)))

    def forward(self, x: Float[Tensor, "B T C"], layer: Layer) -> Float[Tensor, "B T C"]:
        return x + self.branch(x, layer)


class Sandwich(nn.Module):
    """x + norm(layer(norm(x))): what a layer adds is kept in range as well."""

    def __init__(self, norm: nn.Module, closing: nn.Module, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm, self.closing, self.drop = norm, closing, Dropout(dropout)

    def forward(self, x: Float[Tensor, "B T C"], layer: Layer) -> Float[Tensor, "B T C"]:
        return x + self.drop(self.closing(layer(self.norm(x))))
