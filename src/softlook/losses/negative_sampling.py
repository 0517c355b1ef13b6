"""Telling the true neighbour from wrong ones."""

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F


def negative_sampling(scores: Float[Tensor, "B K"]) -> Float[Tensor, ""]:
    """-log s(true) - sum of log s(-wrong), s the logistic function, averaged over the rows.

    The first candidate of each row is the true neighbour, the others were drawn.

    >>> import torch
    >>> negative_sampling(torch.zeros(4, 3))  # three coins
    tensor(2.0794)
    """
    true, wrong = scores[:, 0], scores[:, 1:]
    return (F.softplus(-true) + F.softplus(wrong).sum(1)).mean()
