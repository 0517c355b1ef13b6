"""Negative sampling loss of word2vec."""

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F


def negative_sampling(logits: Float[Tensor, "B K"]) -> Float[Tensor, ""]:
    """Negative sampling loss (Mikolov et al. 2013), averaged over rows: -log s(positive) - sum of log s(-negative).

    The first candidate of each row is the positive one, the others are negative samples; s is the sigmoid.

    >>> import torch
    >>> negative_sampling(torch.zeros(4, 3))  # three coins
    tensor(2.0794)
    """
    positive, negative = logits[:, 0], logits[:, 1:]
    return (F.softplus(-positive) + F.softplus(negative).sum(1)).mean()
