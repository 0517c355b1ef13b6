"""Metrics of multi-label classification, and of regression."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from softlook.recipes.text.metrics import shorten

MAX_WORST_EXAMPLES = 10


def multi_label_scores(
    predicted: Bool[Tensor, "N K"] | Float[Tensor, "N K"], targets: Float[Tensor, "N K"]
) -> dict[str, float]:
    """Micro- and macro-averaged F1, and subset accuracy: the share of texts with exactly the right labels.

    >>> multi_label_scores(torch.tensor([[1, 0], [1, 1]]).bool(), torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    {'f1_micro': 0.8, 'f1_macro': 0.5, 'subset_accuracy': 0.5}
    """
    hits, found, support = _counts(predicted.bool(), targets.bool())
    micro = 2 * hits.sum() / (found + support).sum().clamp(min=1)
    macro = (2 * hits / (found + support).clamp(min=1)).mean()
    exact = (predicted.bool() == targets.bool()).all(-1).double().mean()
    return {"f1_micro": round(micro.item(), 12), "f1_macro": macro.item(), "subset_accuracy": exact.item()}


def multi_label_report(
    probabilities: Float[Tensor, "N K"], targets: Float[Tensor, "N K"], names: Sequence[str], threshold: float
) -> dict[str, Any]:
    """All metrics of a multi-label classifier as JSON types: numbers first, then those of each label."""
    predicted = probabilities > threshold
    eps = torch.finfo(probabilities.dtype).eps
    likelihood = torch.where(targets.bool(), probabilities, 1 - probabilities).clamp(min=eps)
    hits, found, support = (counts.tolist() for counts in _counts(predicted, targets.bool()))
    classes = {
        name: {
            "precision": hits[number] / max(found[number], 1),
            "recall": hits[number] / max(support[number], 1),
            "f1": 2 * hits[number] / max(found[number] + support[number], 1),
            "support": int(support[number]),
        }
        for number, name in enumerate(names)
    }
    return {
        "examples": len(targets),
        **multi_label_scores(predicted, targets),
        "log_loss": -likelihood.double().log().mean().item(),
        "classes": classes,
    }


def _counts(predicted: Bool[Tensor, "N K"], targets: Bool[Tensor, "N K"]) -> tuple[Tensor, Tensor, Tensor]:
    """For each label: texts where it was rightly predicted, where it was predicted, and where it is."""
    return (predicted & targets).double().sum(0), predicted.double().sum(0), targets.double().sum(0)


def regression_scores(predicted: Float[Tensor, " N"], targets: Float[Tensor, " N"]) -> dict[str, float]:
    """RMSE, MAE, R2 and Spearman's rank correlation; the last two are 0 for constant targets.

    >>> regression_scores(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([1.0, 2.0, 3.0]))
    {'rmse': 0.577..., 'mae': 0.333..., 'r2': 0.5, 'spearman': 1.0}
    """
    predicted, targets = predicted.double(), targets.double()
    error, variance = predicted - targets, targets.var(correction=0).item()
    mse = error.square().mean().item()
    return {
        "rmse": math.sqrt(mse),
        "mae": error.abs().mean().item(),
        "r2": 1 - mse / variance if variance else 0.0,
        "spearman": spearman(predicted, targets),
    }


def spearman(first: Float[Tensor, " N"], second: Float[Tensor, " N"]) -> float:
    """Spearman's rank correlation; equal values share their mean rank.

    >>> spearman(torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([1.0, 1.0, 9.0, 5.0]))
    0.737...
    """
    one, other = (ranks - ranks.mean() for ranks in (_ranks(first), _ranks(second)))
    spread = (one.square().sum() * other.square().sum()).sqrt().item()
    return round((one * other).sum().item() / spread, 12) if spread else 0.0


def _ranks(values: Tensor) -> Tensor:
    _, inverse, counts = values.unique(return_inverse=True, return_counts=True)
    last = counts.cumsum(0).double()
    return (last - (counts - 1) / 2)[inverse]


def regression_report(
    predicted: Float[Tensor, " N"], targets: Float[Tensor, " N"], texts: Sequence[str] = ()
) -> dict[str, Any]:
    """All metrics of a regression as JSON types, and the examples with the largest errors."""
    report: dict[str, Any] = {"examples": len(targets), **regression_scores(predicted, targets)}
    if texts:
        order: list[int] = (predicted - targets).abs().argsort(descending=True, stable=True).tolist()
        report["worst_examples"] = [
            {
                "text": shorten(texts[number]),
                "label": float(f"{targets[number].item():.6g}"),
                "prediction": float(f"{predicted[number].item():.6g}"),
            }
            for number in order[:MAX_WORST_EXAMPLES]
        ]
    return report
