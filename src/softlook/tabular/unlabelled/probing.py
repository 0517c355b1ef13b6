"""Straight lines from few labels: what a model sees of cells stays as it is, and only how it answers is learned.

A whole model of many thousand weights learns fifty labels by heart within a few steps. Lines on cells that are already
understood do not, if they are held back: the likeliest ones are taken, when every answer was, before any label came, a
number around a common one with a deviation of about 1. Half of that is what cells say as they came, half what they say
after they have looked at one another.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from softlook.tabular.encoding.rows import Rows
from softlook.tabular.encoding.targets import Targets
from softlook.tabular.unlabelled.internals import cells_of, silence

STEPS = 300
"""At most; it is a valley without hollows, and far fewer take one to its ground."""
MOST = 4096
"""Rows that say where features lie, and how far apart."""


@dataclass(frozen=True, eq=False)
class Scale:
    """Where features of rows lie, and by how much to divide them so that they have a length of about 1 together."""

    middle: Tensor
    width: Tensor

    @staticmethod
    def of(model: nn.Module, rows: Rows) -> "Scale":
        """From rows without labels: plain features of a column compare as they are, those of cells each by itself."""
        plain, cells = (part.double() for part in _features(model, rows.take(slice(MOST))))
        middles = [part.mean(0) for part in (plain, cells)]
        spreads = [part.std(0, correction=0) for part in (plain, cells)]
        wide = spreads[0].square().sum().sqrt().expand_as(spreads[0])
        each = spreads[1] + 1e-3 * spreads[1].mean()
        width = torch.cat([wide, each * cells.shape[1] ** 0.5]) * 2**0.5
        return Scale(torch.cat(middles), width.clamp(min=1e-6))

    def apply(self, features: Tensor) -> Tensor:
        return (features - self.middle) / self.width

    def to(self, device: torch.device) -> "Scale":
        return Scale(self.middle.to(device), self.width.to(device))


def probe(model: nn.Module, rows: Rows, targets: Targets, scale: Scale) -> float:
    """Learn the straight lines beside a model from labelled rows, and let it say no more; gives the mean loss."""
    assert rows.wanted is not None and rows.weight is not None
    scale = scale.to(rows.numbers.device)
    features = scale.apply(torch.cat(_features(model, rows), 1).double())
    weight = features.new_zeros(features.shape[1], targets.outputs).requires_grad_()
    bias = features.new_zeros(targets.outputs).requires_grad_()
    share, wanted = rows.weight.to(features)[:, None], rows.wanted
    descent = torch.optim.LBFGS([weight, bias], max_iter=STEPS, line_search_fn="strong_wolfe")
    losses: list[float] = []

    def loss() -> Tensor:
        descent.zero_grad()
        each = targets.loss((features @ weight + bias)[:, None], wanted) * share
        losses.append(each.mean().item())
        total = each.sum() + weight.square().sum() / 2
        total.backward()
        return total

    descent.step(loss)  # pyright: ignore[reportArgumentType]
    lines = weight.detach() / scale.width[:, None]
    _put(model, lines, bias.detach() - scale.middle @ lines)
    return losses[-1]


def _features(model: Any, rows: Rows) -> tuple[Tensor, Tensor]:
    """Of each row its numbers and a 1 for each of its categories; and its cells as the model sees them."""
    sizes = model.config.categories
    ones = [F.one_hot(column, size) for column, size in zip(rows.categories.unbind(1), sizes, strict=True)]
    return torch.cat([rows.numbers.nan_to_num(), *(one.to(rows.numbers) for one in ones)], 1), cells_of(model, rows)


@torch.no_grad()
def _put(model: Any, lines: Tensor, bias: Tensor) -> None:
    lengths = [weights.numel() // lines.shape[1] for weights in model.beside.parameters()]
    for weights, own in zip(model.beside.parameters(), lines.split(lengths), strict=True):
        weights.copy_(own.view_as(weights))
    silence(model, bias)
