"""Losses: logits and targets to a number to minimize."""

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

IGNORE_INDEX = -100
"""The target of positions that do not count."""


def cross_entropy(
    logits: Float[Tensor, "*B K"], target: Int[Tensor, "*B"], *, label_smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """Mean cross-entropy over the targets that are not `IGNORE_INDEX`; 0 if there are none.

    >>> import torch
    >>> cross_entropy(torch.zeros(1, 2, 4), torch.tensor([[3, IGNORE_INDEX]]))
    tensor(1.3863)
    """
    total = F.cross_entropy(
        logits.flatten(0, -2),
        target.flatten(),
        ignore_index=IGNORE_INDEX,
        label_smoothing=label_smoothing,
        reduction="sum",
    )
    return total / (target != IGNORE_INDEX).sum().clamp(min=1)


def negative_sampling(logits: Float[Tensor, "B K"]) -> Float[Tensor, ""]:
    """Negative sampling loss (Mikolov et al. 2013), averaged over rows: -log s(positive) - sum of log s(-negative).

    The first candidate of each row is the positive one, the others are negative samples; s is the sigmoid.

    >>> import torch
    >>> negative_sampling(torch.zeros(4, 3))  # three coins
    tensor(2.0794)
    """
    positive, negative = logits[:, 0], logits[:, 1:]
    return (F.softplus(-positive) + F.softplus(negative).sum(1)).mean()
