"""Linear probing: the last layer of a classifier, fitted on the features of a pretrained encoder before fine-tuning."""

import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from softlook.recipes.text.text_problem import TextProblem
from softlook.train.batching.collate import ClassificationBatch, to_device
from softlook.train.rng import preserve_rng_states

MAX_ITERATIONS, STRENGTH = 100, 0.1
"""Of L-BFGS; and the inverse strength of the L2 penalty on the weights of standardized features."""
Predict = Callable[[nn.Module, ClassificationBatch], Tensor]


def fit_head(
    model: Any, batches: Iterable[ClassificationBatch], predict: Predict, problem: TextProblem, *, seconds: float
) -> int:
    """Fit the last layer on as many texts as can be encoded in so many seconds; returns their number.

    Fine-tuning then starts from useful gradients and distorts the pretrained features less (Kumar et al., 2022).
    """
    features, targets = encode(model, batches, predict, seconds)
    mean, scale = features.mean(0), features.std(0, correction=0).clamp(min=1e-6)
    weight, bias = fit_linear((features - mean) / scale, targets, problem)
    layer = model.head.to_classes
    with torch.no_grad():
        layer.weight.copy_(weight / scale)
        layer.bias.copy_(bias - (weight / scale) @ mean)
    return len(targets)


@torch.no_grad()
def encode(
    model: Any, batches: Iterable[ClassificationBatch], predict: Predict, seconds: float
) -> tuple[Float[Tensor, "N C"], Tensor]:
    """The pooled vectors of texts, which are the input of the last layer, and the targets."""
    features, targets, began = list[Tensor](), list[Tensor](), time.monotonic()
    device, was_training = next(model.parameters()).device, model.training
    layer: nn.Module = model.head.to_classes
    handle = layer.register_forward_pre_hook(lambda _, inputs: features.append(inputs[0].float().cpu()))
    with preserve_rng_states(device):
        model.eval()
        for batch in batches:
            predict(model, to_device(batch, device))
            targets.append(batch.labels)
            if time.monotonic() > began + seconds:
                break
    model.train(was_training)
    handle.remove()
    return torch.cat(features), torch.cat(targets)


def fit_linear(
    features: Float[Tensor, "N C"], targets: Tensor, problem: TextProblem
) -> tuple[Float[Tensor, "K C"], Float[Tensor, " K"]]:
    """Weight and bias of a generalized linear model with an L2 penalty."""
    classes = problem.responses(targets).shape[1]
    weight = torch.zeros(classes, features.shape[1], requires_grad=True)
    bias = torch.zeros(classes, requires_grad=True)
    penalty = 1 / (STRENGTH * len(targets))
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=MAX_ITERATIONS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        logits = features @ weight.T + bias
        loss = problem.negative_log_likelihood(logits, targets) + penalty / 2 * weight.square().sum()
        loss.backward()
        return loss

    with torch.enable_grad():
        optimizer.step(closure)
    return weight.detach(), bias.detach()
