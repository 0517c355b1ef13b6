"""RMSNorm over the last dimensions (Zhang and Sennrich, 2019)."""

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from softlook.base.errors import ShapeError


def rms_norm(
    x: Float[Tensor, "*dims"], weight: Float[Tensor, "*normalized"] | None = None, *, axes: int = 1, eps: float = 1e-6
) -> Float[Tensor, "*dims"]:
    """Divide by the root mean square over the last `axes` dimensions, then multiply by a weight.

    Computed in at least float32.

    >>> import torch
    >>> rms_norm(torch.tensor([3.0, 4.0]), eps=0.0)
    tensor([0.8485, 1.1314])
    """
    if not 1 <= axes <= x.ndim:
        raise ShapeError(f"rms_norm over {axes} dimensions expects at least as many, got shape {tuple(x.shape)}")
    normalized = x.shape[-axes:]
    if weight is not None and (weight.dtype != x.dtype or weight.shape != normalized):
        return F.rms_norm(x, normalized, eps=eps) * weight  # torch's kernel needs a weight of the same dtype and shape
    return F.rms_norm(x, normalized, weight, eps)
