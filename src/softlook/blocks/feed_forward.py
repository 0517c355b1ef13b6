"""Feed-forward layers (MLP), plain and gated."""

from collections.abc import Callable
from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from softlook.ops.dropout import Dropout

Activation = Callable[[Tensor], Tensor]
ActivationName = Literal["relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid"]


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU in the tanh approximation of GPT-2, up to 5e-4 from the exact one."""
    return F.gelu(x, approximate="tanh")


ACTIVATIONS: dict[ActivationName, Activation] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": gelu_tanh,
    "silu": F.silu,
    "tanh": F.tanh,
    "sigmoid": F.sigmoid,
}
"""Activations by the names that configs use."""


class FeedForward(nn.Module):
    """Position-wise feed-forward layer (MLP), W_out act(W_up x + b) + c. Default hidden width: 4 * dim.

    >>> import torch
    >>> FeedForward(8)(torch.randn(2, 3, 8)).shape
    torch.Size([2, 3, 8])
    """

    def __init__(
        self,
        dim: int,
        hidden: int | None = None,
        activation: Activation = F.relu,
        *,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        hidden = 4 * dim if hidden is None else hidden
        self.to_up = nn.Linear(dim, hidden, bias=bias)
        self.activation = activation
        self.dropout = Dropout(dropout)
        self.to_out = nn.Linear(hidden, dim, bias=bias)

    def forward(self, x: Float[Tensor, "*B C"]) -> Float[Tensor, "*B C"]:
        return self.to_out(self.dropout(self.activation(self.to_up(x))))


class GatedFeedForward(nn.Module):
    """Gated linear unit (Shazeer 2020), W_out (act(W_gate x) * W_up x).

    ReGLU with `F.relu`, GEGLU with `F.gelu`, SwiGLU with `F.silu`, GLU with `F.sigmoid`.

    >>> import torch
    >>> GatedFeedForward(8, 24, F.silu)(torch.randn(2, 3, 8)).shape
    torch.Size([2, 3, 8])
    """

    def __init__(
        self, dim: int, hidden: int, activation: Activation, *, bias: bool = False, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.to_gate = nn.Linear(dim, hidden, bias=bias)
        self.to_up = nn.Linear(dim, hidden, bias=bias)
        self.activation = activation
        self.dropout = Dropout(dropout)
        self.to_out = nn.Linear(hidden, dim, bias=bias)

    def forward(self, x: Float[Tensor, "*B C"]) -> Float[Tensor, "*B C"]:
        return self.to_out(self.dropout(self.activation(self.to_gate(x)) * self.to_up(x)))
