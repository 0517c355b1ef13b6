"""Causal dilated convolutions (WaveNet)."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from softlook.base.errors import ConfigError
from softlook.ops.dropout import Dropout


class CausalConvolution(nn.Module):
    """Causal dilated convolution: output t depends on inputs t, t - dilation, t - 2 dilation, ... The left is padded.

    >>> CausalConvolution(8, kernel_size=3, dilation=2)(torch.randn(2, 5, 8)).shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, dim: int, kernel_size: int = 2, dilation: int = 1) -> None:
        super().__init__()
        if kernel_size < 1 or dilation < 1:
            raise ConfigError(f"kernel_size and dilation must be at least 1, got {kernel_size} and {dilation}")
        self.conv = nn.Conv1d(dim, dim, kernel_size, dilation=dilation)
        self.left_padding = (kernel_size - 1) * dilation

    def forward(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        return self.conv(F.pad(x.mT, (self.left_padding, 0))).mT


class GatedConvolution(nn.Module):
    """WaveNet's gated activation unit: W_out (tanh(conv(x)) * sigmoid(gate_conv(x))).

    >>> GatedConvolution(8, kernel_size=2, dilation=4)(torch.randn(2, 5, 8)).shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, dim: int, kernel_size: int = 2, dilation: int = 1) -> None:
        super().__init__()
        self.to_filter = CausalConvolution(dim, kernel_size, dilation)
        self.to_gate = CausalConvolution(dim, kernel_size, dilation)
        self.to_out = nn.Linear(dim, dim)

    def forward(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        return self.to_out(torch.tanh(self.to_filter(x)) * torch.sigmoid(self.to_gate(x)))


class ConvolutionStack(nn.Module):
    """Pre-norm residual stack of gated convolutions, each with its own dilation.

    >>> stack = ConvolutionStack(8, kernel_size=2, dilations=(1, 2, 4))
    >>> stack(torch.randn(2, 5, 8)).shape, stack.receptive_field
    (torch.Size([2, 5, 8]), 8)
    """

    def __init__(
        self, dim: int, kernel_size: int, dilations: Sequence[int], *, dropout: float = 0.0, eps: float = 1e-5
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(GatedConvolution(dim, kernel_size, dilation) for dilation in dilations)
        self.norms = nn.ModuleList(nn.LayerNorm(dim, eps) for _ in dilations)
        self.dropout = Dropout(dropout)
        self.receptive_field = 1 + (kernel_size - 1) * sum(dilations)
        """Number of positions that an output depends on, its own included."""

    def forward(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = x + self.dropout(layer(norm(x)))
        return x
