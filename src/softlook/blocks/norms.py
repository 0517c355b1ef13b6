"""RMSNorm, and Gemma's zero-centered variant."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from softlook.base.errors import ShapeError


def rms_norm(
    x: Float[Tensor, "*dims"], weight: Float[Tensor, "*normalized"] | None = None, *, axes: int = 1, eps: float = 1e-6
) -> Float[Tensor, "*dims"]:
    """Divide by the root mean square over the last `axes` dimensions, then multiply by a weight.

    Computed in at least float32.

    >>> rms_norm(torch.tensor([3.0, 4.0]), eps=0.0)
    tensor([0.8485, 1.1314])
    """
    if not 1 <= axes <= x.ndim:
        raise ShapeError(f"rms_norm over {axes} dimensions expects at least as many, got shape {tuple(x.shape)}")
    normalized = x.shape[-axes:]
    if weight is not None and (weight.dtype != x.dtype or weight.shape != normalized):
        return F.rms_norm(x, normalized, eps=eps) * weight  # torch's kernel needs a weight of the same dtype and shape
    return F.rms_norm(x, normalized, weight, eps)


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
