"""RMSNorm, and Gemma's zero-centered variant."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from softlook.ops.norms import rms_norm


class RMSNorm(nn.Module):
    """Root mean square norm (Zhang and Sennrich 2019), computed in float32 at least.

    Unlike `nn.RMSNorm` it keeps the float32 fused path under autocast, where inputs and weights differ in dtype.

    >>> RMSNorm(2, eps=0.0)(torch.tensor([3.0, 4.0]))
    tensor([0.8485, 1.1314], grad_fn=<MulBackward0>)
    """

    def __init__(self, dim: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x: Float[Tensor, "*B C"]) -> Float[Tensor, "*B C"]:
        return rms_norm(x, self.weight, eps=self.eps)


class ZeroCenteredRMSNorm(nn.Module):
    """RMSNorm that scales by 1 + weight, as in Gemma.

    The scaling is computed in float32 at least, as 1 + weight in half precision would lose bits.

    >>> ZeroCenteredRMSNorm(2, eps=0.0)(torch.tensor([3.0, 4.0]))
    tensor([0.8485, 1.1314], grad_fn=<MulBackward0>)
    """

    def __init__(self, dim: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(dim))
        self.eps = eps

    def forward(self, x: Float[Tensor, "*B C"]) -> Float[Tensor, "*B C"]:
        dtype = torch.promote_types(x.dtype, torch.float32)
        return (rms_norm(x.to(dtype), eps=self.eps) * (1.0 + self.weight.to(dtype))).to(x.dtype)
