"""Norms that keep numbers in range."""

import torch
from jaxtyping import Float
from torch import Tensor

from softlook.base.errors import ShapeError


def rms_norm(
    x: Float[Tensor, "*places"], weight: Float[Tensor, "*kept"] | None = None, *, axes: int = 1, eps: float = 1e-6
) -> Float[Tensor, "*places"]:
    """Divide by the root of the mean square over the last `axes` axes, then multiply with a weight.

    Worked out in single precision at least, whatever `x` holds.

    >>> rms_norm(torch.tensor([3.0, 4.0]), eps=0.0)
    tensor([0.8485, 1.1314])
    """
    if not 1 <= axes <= x.ndim:
        raise ShapeError(f"rms_norm over {axes} axes wants a tensor with at least as many; {tuple(x.shape)} came")
    numbers = x if x.dtype == torch.float64 else x.float()
    mean_square = numbers.square().mean(tuple(range(-axes, 0)), keepdim=True)
    normed = (numbers * (mean_square + eps).rsqrt()).to(x.dtype)
    return normed if weight is None else normed * weight
