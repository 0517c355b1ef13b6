"""Ensemble selection: weights of models by their out-of-fold predictions (Caruana et al. 2004)."""

import torch
from torch import Tensor

from softlook.tabular.preprocessing.target import Target

ROUNDS = 50
"""Models that are added, with replacement; the weight of a model is how often it was."""


def select_weights(predictions: Tensor, targets: Tensor, weight: Tensor, target: Target) -> list[float]:
    """The weight of each of the models' predictions (M, N, C); they sum to 1.

    Greedy: the model is added that most improves the loss of the mean so far. The best mean of all rounds is kept.

    >>> import numpy as np
    >>> from softlook.tabular.preprocessing.target import ClassTarget
    >>> good, bad = torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.tensor([[0.3, 0.7], [0.6, 0.4]])
    >>> targets, weight = torch.tensor([0, 1]), torch.ones(2)
    >>> select_weights(torch.stack([good, bad]), targets, weight, ClassTarget(np.array(["no", "yes"])))
    [1.0, 0.0]
    """
    weight = (weight / weight.sum()).double()
    counts, total = torch.zeros(len(predictions)), torch.zeros_like(predictions[0])
    best, best_counts = float("inf"), counts
    for size in range(1, ROUNDS + 1):
        losses = [mean_loss((total + one) / size, targets, weight, target) for one in predictions]
        chosen = min(range(len(losses)), key=losses.__getitem__)
        counts = counts.clone()
        counts[chosen] += 1
        total = total + predictions[chosen]
        if losses[chosen] < best - 1e-9:
            best, best_counts = losses[chosen], counts
    return (best_counts / best_counts.sum()).tolist()


def mean_loss(predictions: Tensor, targets: Tensor, weight: Tensor, target: Target) -> float:
    """The weighted mean loss; a probability of 0 counts as one of 1e-15."""
    if targets.ndim == 1:
        predictions = predictions.clamp(min=1e-15)
    return float((target.evaluate(predictions, targets)[0] * weight).sum())
