"""The position-wise feed-forward layer: the same two steps for every position. Knowledge is stored here."""

from collections.abc import Callable
from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from softlook.ops.dropping import Dropout

Activation = Callable[[Tensor], Tensor]
ActivationName = Literal["relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid"]


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU as GPT-2 computes it, by a tanh; up to 5e-4 from the exact one."""
    return F.gelu(x, approximate="tanh")


ACTIVATIONS: dict[ActivationName, Activation] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": gelu_tanh,
    "silu": F.silu,
    "tanh": F.tanh,
    "sigmoid": F.sigmoid,
}
"""The names that a config may use."""


class FeedForward(nn.Module):
    """FF(x) = U act(V x + b) + c, four times as wide inside where no width is told.

    >>> import torch
    >>> FeedForward(8)(torch.randn(2, 3, 8)).shape
    torch.Size([2, 3, 8])
    """

    def __init__(
        self,
        dim: int,
        hidden: int | None = None,
        act: Activation = F.relu,
        *,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        hidden = 4 * dim if hidden is None else hidden
        self.to_hidden = nn.Linear(dim, hidden, bias=bias)
        self.act = act
        self.drop = Dropout(dropout)
        self.to_out = nn.Linear(hidden, dim, bias=bias)

    def forward(self, x: Float[Tensor, "*places C"]) -> Float[Tensor, "*places C"]:
        return self.to_out(self.drop(self.act(self.to_hidden(x))))


class GatedFeedForward(nn.Module):
    """FF(x) = U (act(W x) * V x): one half opens and closes the other.

    ReGLU with `act=F.relu`, GEGLU with `F.gelu`, SwiGLU with `F.silu`, and GLU itself with `F.sigmoid`.

    >>> import torch
    >>> GatedFeedForward(8, 24, F.silu)(torch.randn(2, 3, 8)).shape
    torch.Size([2, 3, 8])
    """

    def __init__(self, dim: int, hidden: int, act: Activation, *, bias: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        self.to_gate = nn.Linear(dim, hidden, bias=bias)
        self.to_hidden = nn.Linear(dim, hidden, bias=bias)
        self.act = act
        self.drop = Dropout(dropout)
        self.to_out = nn.Linear(hidden, dim, bias=bias)

    def forward(self, x: Float[Tensor, "*places C"]) -> Float[Tensor, "*places C"]:
        return self.to_out(self.drop(self.act(self.to_gate(x)) * self.to_hidden(x)))
