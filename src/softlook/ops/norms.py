"""Norms that keep numbers in range."""

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from softlook.base.errors import ShapeError


def rms_norm(
    x: Float[Tensor, "*places"], weight: Float[Tensor, "*kept"] | None = None, *, axes: int = 1, eps: float = 1e-6
) -> Float[Tensor, "*places"]:
    """Divide by the root of the mean square over the last `axes` axes, then multiply with a weight.

    Worked out in single precision at least, whatever `x` holds.

    >>> import torch
    >>> rms_norm(torch.tensor([3.0, 4.0]), eps=0.0)
    tensor([0.8485, 1.1314])
    """
    if not 1 <= axes <= x.ndim:
        raise ShapeError(f"rms_norm over {axes} axes wants a tensor with at least as many; {tuple(x.shape)} came")
    kept = x.shape[-axes:]
    if weight is not None and (weight.dtype != x.dtype or weight.shape != kept):
        return F.rms_norm(x, kept, eps=eps) * weight  # torch's kernel wants a weight of the same kind and size
    return F.rms_norm(x, kept, weight, eps)
