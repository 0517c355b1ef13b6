"""Which keys are there at all."""

from jaxtyping import Bool
from torch import Tensor

from softlook.ops.masks import Mask, dense


def among(present: Bool[Tensor, "B S"] | None, mask: Mask | Tensor | None = None) -> Mask | Tensor | None:
    """Look only at tokens that are there, and where the mask allows.

    >>> import torch
    >>> print(among(torch.tensor([[True, False]])))
    dense(1x1x1x2)
    """
    if present is None:
        return mask
    return dense(present[:, None, None]) if mask is None else dense(present[:, None, None]) & mask
