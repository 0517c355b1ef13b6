"""Causal convolutions: the other way to read the past, and what attention is compared with.

A layer sees a few fixed places behind each position. Dilation spreads them out, so that the reach of a stack grows
like 2 to the number of layers, where attention reaches everything in one. They are layers like any other: `x` in, `x`
out, with a residual arrangement around them. There is no mask to hand in; what they may see is built in.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from softlook.base.errors import ConfigError
from softlook.blocks.residual import PreNorm


class CausalConvolution(nn.Module):
    """y_t is made from x_t, x_{t-d}, x_{t-2d} ...: `kernel` places, d = `dilation` apart, none of them ahead.

    Before the first position there is nothing, and nothing counts as zeros.

    >>> CausalConvolution(8, kernel=3, dilation=2)(torch.randn(2, 5, 8)).shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, dim: int, kernel: int = 2, dilation: int = 1) -> None:
        super().__init__()
        if kernel < 1 or dilation < 1:
            raise ConfigError(f"a convolution wants kernel and dilation from 1 up; {kernel} and {dilation} came")
        self.conv = nn.Conv1d(dim, dim, kernel, dilation=dilation)
        self.past = (kernel - 1) * dilation

    def forward(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        return self.conv(F.pad(x.mT, (self.past, 0))).mT


class GatedConvolution(nn.Module):
    """to_out(tanh(one convolution) * sigmoid(another)), as WaveNet has it: what is new, and how much of it.

    >>> GatedConvolution(8, kernel=2, dilation=4)(torch.randn(2, 5, 8)).shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, dim: int, kernel: int = 2, dilation: int = 1) -> None:
        super().__init__()
        self.to_hidden = CausalConvolution(dim, kernel, dilation)
        self.to_gate = CausalConvolution(dim, kernel, dilation)
        self.to_out = nn.Linear(dim, dim)

    def forward(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        return self.to_out(torch.tanh(self.to_hidden(x)) * torch.sigmoid(self.to_gate(x)))


class ConvolutionStack(nn.Module):
    """Gated convolutions on one residual path, each with its own dilation.

    >>> stack = ConvolutionStack(8, kernel=2, dilations=(1, 2, 4))
    >>> stack(torch.randn(2, 5, 8)).shape, stack.reach
    (torch.Size([2, 5, 8]), 8)
    """

    def __init__(
        self, dim: int, kernel: int, dilations: Sequence[int], *, dropout: float = 0.0, eps: float = 1e-5
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(GatedConvolution(dim, kernel, dilation) for dilation in dilations)
        self.around = nn.ModuleList(PreNorm(nn.LayerNorm(dim, eps), dropout) for _ in dilations)
        self.reach = 1 + (kernel - 1) * sum(dilations)
        """How many positions an output depends on, its own and those before."""

    def forward(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        for layer, around in zip(self.layers, self.around, strict=True):
            x = around(x, layer)
        return x
