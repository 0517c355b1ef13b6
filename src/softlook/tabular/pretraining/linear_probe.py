"""Linear probe on the cell states of a pretrained model.

A whole model overfits fifty labels within a few steps. A regularized linear model on pretrained features does not: it
is the maximum a posteriori estimate under a prior in which every output has a standard deviation of about 1. Half of
the features are the raw cells, half the contextual states of the cells.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from softlook.models.ft_transformer import FTTransformer
from softlook.models.tab_transformer import TabTransformer
from softlook.models.table_transformer import TableTransformer
from softlook.tabular.preprocessing.rows import TableTensors
from softlook.tabular.preprocessing.target import Target

MAX_STEPS = 300
"""L-BFGS steps; the problem is convex, and far fewer are needed."""
MAX_SCALE_ROWS = 4096
"""Rows from which the scale of features is estimated."""
TableModel = TabTransformer | FTTransformer | TableTransformer


@dataclass(frozen=True, eq=False)
class FeatureScale:
    """Mean and scale of features; scaled rows have a norm of about 1."""

    mean: Tensor
    scale: Tensor

    @staticmethod
    def of(model: Any, rows: TableTensors) -> "FeatureScale":
        """From unlabelled rows: raw features share one scale, those of cells have one each."""
        raw, cells = (part.double() for part in _features(model, rows.take(slice(MAX_SCALE_ROWS))))
        means = [part.mean(0) for part in (raw, cells)]
        stds = [part.std(0, correction=0) for part in (raw, cells)]
        common = stds[0].square().sum().sqrt().expand_as(stds[0])
        own = stds[1] + 1e-3 * stds[1].mean()
        scale = torch.cat([common, own * cells.shape[1] ** 0.5]) * 2**0.5
        return FeatureScale(torch.cat(means), scale.clamp(min=1e-6))

    def apply(self, features: Tensor) -> Tensor:
        return (features - self.mean) / self.scale

    def to(self, device: torch.device) -> "FeatureScale":
        return FeatureScale(self.mean.to(device), self.scale.to(device))


def fit_linear_probe(model: Any, rows: TableTensors, target: Target, scale: FeatureScale) -> float:
    """Fit the model's linear skip on labelled rows and zero its head; returns the mean loss."""
    assert rows.targets is not None and rows.weight is not None
    scale = scale.to(rows.numbers.device)
    features = scale.apply(torch.cat(_features(model, rows), 1).double())
    weight = features.new_zeros(features.shape[1], target.outputs).requires_grad_()
    bias = features.new_zeros(target.outputs).requires_grad_()
    sample_weight, targets = rows.weight.to(features)[:, None], rows.targets
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=MAX_STEPS, line_search_fn="strong_wolfe")
    losses: list[float] = []

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = target.loss((features @ weight + bias)[:, None], targets) * sample_weight
        losses.append(loss.mean().item())
        total = loss.sum() + weight.square().sum() / 2
        total.backward()
        return total

    optimizer.step(closure)  # pyright: ignore[reportArgumentType]
    unscaled = weight.detach() / scale.scale[:, None]
    _load_probe(model, unscaled, bias.detach() - scale.mean @ unscaled)
    return losses[-1]


def _features(model: Any, rows: TableTensors) -> tuple[Tensor, Tensor]:
    """Numbers and one-hot categories of each row; and the contextual states of its cells."""
    one_hot = [
        F.one_hot(column, size)
        for column, size in zip(rows.categories.unbind(1), model.config.cardinalities, strict=True)
    ]
    raw = torch.cat([rows.numbers.nan_to_num(), *(column.to(rows.numbers) for column in one_hot)], 1)
    return raw, cell_features(model, rows)


@torch.no_grad()
def _load_probe(model: Any, weight: Tensor, bias: Tensor) -> None:
    parameters = list(model.linear_skip.parameters())
    rows = [weights.numel() // weight.shape[1] for weights in parameters]
    for weights, own in zip(parameters, weight.split(rows), strict=True):
        weights.copy_(own.view_as(weights))
    zero_head(model, bias)


# --- hidden states ---------------------------------------------------------------------------------------------------


def embed_cells(model: TableModel, rows: TableTensors) -> Tensor:
    """(N, J, C): the token of each cell, numbers first; a TabTransformer has none for numbers."""
    if isinstance(model, TabTransformer):
        return model.categorical_embedding(rows.categories)
    return torch.cat([model.numeric_embedding(rows.numbers), model.categorical_embedding(rows.categories)], 1)


def contextual_cells(model: TableModel, tokens: Tensor) -> Tensor:
    """(N, E, J, C): the states of the cells after all blocks. E: ensemble members that have been expanded.

    A model that predicts from [CLS] computes its last block for [CLS] alone; here it is computed for all cells.
    """
    if isinstance(model, TabTransformer):
        for block in model.blocks:
            tokens = block(tokens)
        return tokens[:, None]
    x = torch.cat([model.cls_token.expand(len(tokens), 1, -1), tokens], 1)
    for layer, block in enumerate(model.blocks):
        if isinstance(model, TableTransformer) and model.member_scale.shape[1] > 1 and layer == model.shared_blocks:
            x = model.expand_members(x)
        x = block(x)
    return x[:, 1:].unflatten(0, (len(tokens), -1))


@torch.no_grad()
def cell_features(model: TableModel, rows: TableTensors) -> Tensor:
    """(N, J C): the states of the cells, the mean over members, concatenated."""
    model.eval()
    batches = rows.split(rows.inference_batch_size(model))
    return torch.cat([contextual_cells(model, embed_cells(model, batch)).mean(1).flatten(1) for batch in batches])


@torch.no_grad()
def zero_head(model: TableModel, bias: Tensor) -> None:
    """Make everything but the linear skip predict the constant `bias` (K,)."""
    if isinstance(model, TableTransformer):
        model.head_weight.zero_()
        model.head_bias.copy_(bias.expand_as(model.head_bias))
        return
    last: Any = model.head[-1] if isinstance(model.head, nn.Sequential) else model.head
    last.weight.zero_()
    last.bias.copy_(bias)


def is_head_parameter(name: str) -> bool:
    """Whether a parameter belongs to the output head or the linear skip."""
    return name.startswith(("head", "linear_skip"))
