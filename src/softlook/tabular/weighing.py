"""Which columns matter, within a few seconds: worked out on rows as the model reads them, as many as that allows."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from softlook.tabular.estimator import TableEstimator
from softlook.tabular.importance import lost_by_shuffling, rank_correlation
from softlook.tabular.metrics import loss_of
from softlook.tabular.rows import Rows
from softlook.train.chance import chance

PRODUCTS, ELSEWHERE = 5e10, 1e13
"""What it may cost on a CPU, some seconds, and on other devices."""
LEAST_ROWS, MOST_ROWS = 256, 2_000
"""Fewer rows would say too little of a column, more would hardly say more."""


@dataclass(frozen=True, eq=False)
class Weighed:
    """What each column is to a model, in two opinions."""

    names: tuple[str, ...]
    attention: np.ndarray
    """(columns,) share of the look that falls on a column; NaN for one that no block looks at."""
    permutation: np.ndarray
    """(columns,) by how much the log loss, or RMSE, is larger when the column is shuffled; NaN where not tried."""
    rows: int
    """How many rows say so."""

    @property
    def correlation(self) -> float:
        """How far both agree in their ranks."""
        return rank_correlation(self.attention, self.permutation)

    def order(self) -> np.ndarray:
        """Columns, those that matter most first; those that were not shuffled last, by attention."""
        return np.lexsort((-np.nan_to_num(self.attention), -np.nan_to_num(self.permutation, nan=-np.inf)))


def weighed(estimator: TableEstimator, rows: Rows, *, seed: int) -> Weighed:
    """Attention, and what shuffling costs, on some rows. Of very many columns, those most looked at are shuffled."""
    device = next(estimator.model_.parameters()).device
    names, cost = estimator.columns_.names, _cost_of_a_row(estimator)
    budget = PRODUCTS if device.type == "cpu" else ELSEWHERE
    count = min(len(rows), int(np.clip(budget / cost / len(names), LEAST_ROWS, MOST_ROWS)))
    dice = chance(seed)
    some = rows.take(torch.randperm(len(rows), generator=dice)[:count].to(rows.numbers.device)).to(device)
    attention = estimator._attention(some)
    looked_at = np.argsort(-np.nan_to_num(attention, nan=np.inf), kind="stable")
    first = looked_at[: max(1, int(budget / cost / count))].tolist()
    lost = lost_by_shuffling(some, estimator.reading_, first, loss=partial(_loss, estimator), dice=dice)
    return Weighed(names, attention, lost[:, 0], count)


def _cost_of_a_row(estimator: TableEstimator) -> float:
    """Products that an answer takes, about."""
    recipe, tokens = estimator.recipe_, 1 + len(estimator.reading_.shares)
    return tokens * recipe.members * 8 * recipe.depth * recipe.dim**2


def _loss(estimator: TableEstimator, rows: Rows) -> float:
    assert rows.wanted is not None
    said = estimator._answers_by(estimator.model_, rows)
    return loss_of(estimator.targets_, said, rows.wanted.cpu().numpy())
