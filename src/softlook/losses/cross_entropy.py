"""How surprised a model is by what came."""

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

NOTHING = -100
"""The target where nothing is asked."""


def cross_entropy(
    scores: Float[Tensor, "*places K"], target: Int[Tensor, "*places"], *, smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """The mean surprise over the places where something is asked; 0 where nothing is.

    `smoothing` spreads that share of the target over all classes.

    >>> import torch
    >>> cross_entropy(torch.zeros(1, 2, 4), torch.tensor([[3, NOTHING]]))
    tensor(1.3863)
    """
    total = F.cross_entropy(
        scores.flatten(0, -2), target.flatten(), ignore_index=NOTHING, label_smoothing=smoothing, reduction="sum"
    )
    return total / (target != NOTHING).sum().clamp(min=1)
