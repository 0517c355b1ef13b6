"""Calibration of probabilities: temperature scaling, and the expected calibration error."""

import numpy as np
import torch
from torch import Tensor

TEMPERATURES = tuple(1.05**step for step in range(-20, 21))
"""Candidates, from 0.38 to 2.65."""
SMALLEST = 1e-15
BINS = 15


def fit_temperature(probabilities: Tensor, targets: Tensor, weight: Tensor) -> float:
    """The temperature of the lowest log loss; probabilities (N, C).

    >>> modest = torch.tensor([[0.6, 0.4], [0.4, 0.6]]).double()
    >>> fit_temperature(modest, torch.tensor([0, 1]), torch.ones(2)) < 1
    True
    """
    weight = weight / weight.sum()
    rows = torch.arange(len(targets), device=targets.device)

    def loss(temperature: float) -> float:
        scaled = apply_temperature(probabilities, temperature)
        return float(-(scaled[rows, targets].clamp(min=SMALLEST).log() * weight).sum())

    return min(TEMPERATURES, key=loss)


def apply_temperature(probabilities: Tensor, temperature: float) -> Tensor:
    """Softmax of the log probabilities divided by the temperature.

    >>> apply_temperature(torch.tensor([[0.8, 0.2]]).double(), 2.0)
    tensor([[0.6667, 0.3333]], dtype=torch.float64)
    """
    if temperature == 1.0:
        return probabilities
    return (probabilities.clamp(min=SMALLEST).log() / temperature).softmax(1)


def expected_calibration_error(probabilities: np.ndarray, targets: np.ndarray, bins: int = BINS) -> float:
    """Mean distance of confidence and accuracy over bins of equal width of the confidence (Guo et al. 2017).

    probabilities: (N, C); targets: (N,) class indices.

    >>> expected_calibration_error(np.array([[0.9, 0.1], [0.8, 0.2]]), np.array([0, 1]))
    0.45...
    """
    confidence, is_right = probabilities.max(1), probabilities.argmax(1) == targets
    index = np.minimum((confidence * bins).astype(int), bins - 1)
    differences = np.bincount(index, is_right - confidence, minlength=bins)
    return float(np.abs(differences).sum() / len(targets))
