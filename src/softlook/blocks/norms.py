"""Norms as modules. Layer norm is torch's own."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from softlook.ops.norms import rms_norm


class RMSNorm(nn.Module):
    """Divide each vector by the root of its mean square, and scale each feature.

    >>> RMSNorm(2, eps=0.0)(torch.tensor([3.0, 4.0]))
    tensor([0.8485, 1.1314], grad_fn=<MulBackward0>)
    """

    def __init__(self, dim: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x: Float[Tensor, "*places C"]) -> Float[Tensor, "*places C"]:
        return rms_norm(x, self.weight, eps=self.eps)


class ZeroCenteredRMSNorm(nn.Module):
    """RMS norm whose features are scaled by 1 + weight, as in Gemma: weights of zero change nothing.

    The scaling, too, is computed in single precision at least: 1 + weight in half precision would lose bits.

    >>> ZeroCenteredRMSNorm(2, eps=0.0)(torch.tensor([3.0, 4.0]))
    tensor([0.8485, 1.1314], grad_fn=<MulBackward0>)
    """

    def __init__(self, dim: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(dim))
        self.eps = eps

    def forward(self, x: Float[Tensor, "*places C"]) -> Float[Tensor, "*places C"]:
        kind = torch.promote_types(x.dtype, torch.float32)
        return (rms_norm(x.to(kind), eps=self.eps) * (1.0 + self.weight.to(kind))).to(x.dtype)
