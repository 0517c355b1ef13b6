"""Cross-fitting: every model is trained once per fold, and predicts the rows that it was not trained on."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from softlook.base.errors import DataError
from softlook.tabular.ensemble.base_model import BaseModel
from softlook.tabular.preprocessing.rows import TableTensors
from softlook.tabular.training.splits import Split


@dataclass(frozen=True)
class FoldData:
    """Rows, seed and deadline of a fold."""

    train: TableTensors
    validation: TableTensors
    seed: int
    deadline: float
    """In `time.monotonic`; infinite without a time limit."""


@dataclass(frozen=True)
class Recipe:
    """How a model is fitted to the rows of a fold."""

    name: str
    kind: str
    fit: Callable[[FoldData], BaseModel]
    share: float
    """Fraction of the time left that it may take."""
    shares_time: bool = True
    """Whether all folds have equal shares of the time. Otherwise each takes as long as it needs; there may be fewer."""


IsPromising = Callable[[Tensor, np.ndarray], bool]
"""Whether the other folds are worth fitting, given the predictions of the first fold and their row numbers."""


@dataclass(frozen=True, eq=False)
class CrossFit:
    """Models of the folds with their out-of-fold predictions."""

    name: str
    folds: tuple[BaseModel, ...]
    predictions: Tensor
    """(N, C)"""
    covered: Tensor
    """(N,) rows that were predicted."""
    seconds: float
    is_abandoned: bool = False
    """Whether only the first fold was fitted, because its loss is far above that of other models."""

    @property
    def kind(self) -> str:
        return self.folds[0].kind


@dataclass
class CrossFitter:
    """Cross-fits recipes on the same rows."""

    rows: TableTensors
    deadline: float
    seed: int

    def seconds_left(self) -> float:
        return self.deadline - time.monotonic()

    def fit(self, recipe: Recipe, splits: list[Split], is_promising: IsPromising) -> CrossFit | None:
        """None if the recipe cannot be fitted to these rows, or there was no time for a single fold."""
        started, is_abandoned = time.monotonic(), False
        end = started + self.seconds_left() * recipe.share
        models, predictions, covered = list[BaseModel](), None, torch.zeros(len(self.rows), dtype=torch.bool)
        for number, (train, validation) in enumerate(splits):
            now, left = time.monotonic(), len(splits) - number
            slowest = (now - started) / max(1, number)
            if number and (now + 0.8 * slowest > end if not recipe.shares_time else now >= end):
                break
            deadline = now + (end - now) / left if recipe.shares_time else end
            data = FoldData(self._take(train), self._take(validation), self.seed + number, deadline)
            try:
                model = recipe.fit(data)
            except DataError:
                return None
            predicted = model.predict(data.validation).cpu()
            predictions = (
                predicted.new_zeros(len(self.rows), predicted.shape[1]) if predictions is None else predictions
            )
            predictions[torch.from_numpy(validation)] = predicted
            covered[torch.from_numpy(validation)] = True
            models.append(model)
            is_abandoned = number == 0 and len(splits) > 1 and not is_promising(predicted, validation)
            if is_abandoned:
                break
        if predictions is None:
            return None
        return CrossFit(recipe.name, tuple(models), predictions, covered, time.monotonic() - started, is_abandoned)

    def _take(self, index: np.ndarray) -> TableTensors:
        return self.rows.take(torch.from_numpy(index).to(self.rows.numbers.device))
