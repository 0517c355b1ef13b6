"""Which columns matter: by what the model looks at, and by what is lost when a column is shuffled."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import nn

from softlook.base.errors import ConfigError
from softlook.models.tab_transformer import TabTransformer
from softlook.tabular.attention_maps import looks, mean_map
from softlook.tabular.defaults import Recipe
from softlook.tabular.encoding.reading import Reading
from softlook.tabular.encoding.rows import Rows
from softlook.tabular.encoding.targets import Amounts, Classes
from softlook.tabular.learning.metrics import loss_of
from softlook.tabular.learning.settling import products_a_row
from softlook.train.chance import chance

PRODUCTS, ELSEWHERE = 5e10, 1e13
"""What `quick_importances` may cost on a CPU, some seconds, and on other devices."""
LEAST_ROWS, MOST_ROWS = 256, 2_000
"""Rows that it takes: fewer would say too little of a column, more would hardly say more."""


@dataclass(frozen=True, eq=False)
class Importances:
    """Two opinions on every column, and how far they agree."""

    names: tuple[str, ...]
    attention: np.ndarray
    """(columns,) share of the look that falls on a column; NaN for one that no block looks at."""
    permutation: np.ndarray
    """(columns,) what is lost when the column is shuffled, the mean over repeats; NaN for one that was not tried."""
    spread: np.ndarray
    """(columns,) the deviation of that over repeats."""
    rows: int
    """How many rows say so."""

    @property
    def correlation(self) -> float:
        """Spearman's rank correlation between both; NaN where one of them sees no difference between columns."""
        return rank_correlation(self.attention, self.permutation)

    def order(self) -> np.ndarray:
        """Columns, those that matter most first; those that were not shuffled last, by attention."""
        return np.lexsort((-np.nan_to_num(self.attention), -np.nan_to_num(self.permutation, nan=-np.inf)))


class Estimator(Protocol):
    """What is asked of an estimator here."""

    model_: nn.Module
    reading_: Reading
    recipe_: Recipe

    @property
    def targets_(self) -> Classes | Amounts: ...
    def _given(self, X: Any) -> Rows: ...
    def _answers_to(self, rows: Rows) -> np.ndarray: ...
    def _answers_by(self, model: nn.Module, rows: Rows) -> np.ndarray: ...
    def _score_of(self, answers: np.ndarray, y: np.ndarray) -> float: ...
    def _checked_y(self, X: Any, y: Any) -> np.ndarray: ...
    def _whole(self, X: Any, y: Any) -> tuple[Any, Any]: ...
    def explain_rows(self, X: Any) -> np.ndarray: ...
    def _explained(self, rows: Rows) -> np.ndarray: ...
    def _attention(self, rows: Rows) -> np.ndarray: ...


class Explaining:
    """What an estimator can say about its columns."""

    def attention_importance(self: Estimator, X: Any) -> np.ndarray:
        """(columns,): how much [CLS] looks at each column, the mean over heads, blocks and rows.

        The FT-Transformer paper's importance (section 5.3). Its authors vouch for the ranks alone: compare it with
        `importances`. What is short of 1 is [CLS]'s look at itself. A TabTransformer has no [CLS]: there it is the look
        of all categories, and numbers, which no block sees, are NaN.
        """
        return self.explain_rows(X).mean(0)

    def explain_rows(self: Estimator, X: Any) -> np.ndarray:
        """(N, columns): the same for each row by itself."""
        return self._explained(self._given(X))

    def _explained(self: Estimator, rows: Rows) -> np.ndarray:
        _check_looks(self.model_)
        return _by_column(looks(self.model_, rows).cpu().numpy(), self)

    def _attention(self: Estimator, rows: Rows) -> np.ndarray:
        """The mean of these, also of a model without blocks: NaN for every column."""
        if not _depth(self.model_):
            return np.full(len(self.reading_.columns.names), np.nan)
        return self._explained(rows).mean(0)

    def attention_maps(self: Estimator, X: Any) -> np.ndarray:
        """(columns, columns): how much a column looks at another, the mean over rows, heads and blocks.

        Only [CLS] looks in the last block of an FT-Transformer, so that block is left out.
        """
        rows = self._given(X)
        _check_looks(self.model_)
        if not isinstance(self.model_, TabTransformer) and _depth(self.model_) == 1:
            raise ConfigError("in the last block only [CLS] looks, and this model has no other. Use depth=2 or more.")
        given = _by_column(mean_map(self.model_, rows).cpu().numpy(), self)
        return _by_column(given.T, self, mean=True).T

    def importances(self: Estimator, X: Any, y: Any, *, repeats: int = 5, random_state: int = 0) -> Importances:
        """Attention beside permutation importance, and their rank correlation.

        Permutation: how much lower `score` is when a column's cells are dealt out anew among the rows, the mean of so
        many repeats. Columns that tell one choice together (`reading_.choices`) share what that costs evenly. Of a
        table in pieces, as by path, y is the name of its target.
        """
        if repeats < 1:
            raise ConfigError(f"repeats is a whole number from 1 up; {repeats!r} came")
        X, y = self._whole(X, y)
        rows, y, names = self._given(X), self._checked_y(X, y), self.reading_.columns.names
        dice = torch.Generator().manual_seed(random_state)

        def loss(shuffled: Rows) -> float:
            return -self._score_of(self._answers_to(shuffled), y)

        lost = lost_by_shuffling(rows, self.reading_, range(len(names)), loss=loss, dice=dice, repeats=repeats)
        return Importances(names, self._attention(rows), lost.mean(1), lost.std(1), len(rows))


def quick_importances(estimator: Estimator, rows: Rows, *, seed: int) -> Importances:
    """The same within a few seconds, by the log loss, or RMSE, of some of these rows, which know what is wanted.

    Every column is shuffled once; of very many, those most looked at.
    """
    device = next(estimator.model_.parameters()).device
    names, cost = estimator.reading_.columns.names, _cost_of_a_row(estimator)
    budget = PRODUCTS if device.type == "cpu" else ELSEWHERE
    count = min(len(rows), int(np.clip(budget / cost / len(names), LEAST_ROWS, MOST_ROWS)))
    dice = chance(seed)
    some = rows.take(torch.randperm(len(rows), generator=dice)[:count].to(rows.numbers.device)).to(device)

    def loss(shuffled: Rows) -> float:
        assert shuffled.wanted is not None
        answers = estimator._answers_by(estimator.model_, shuffled)
        return loss_of(estimator.targets_, answers, shuffled.wanted.cpu().numpy())

    attention = estimator._attention(some)
    looked_at = np.argsort(-np.nan_to_num(attention, nan=np.inf), kind="stable")
    first = looked_at[: max(1, int(budget / cost / count))].tolist()
    lost = lost_by_shuffling(some, estimator.reading_, first, loss=loss, dice=dice)
    return Importances(names, attention, lost.mean(1), lost.std(1), count)


def _cost_of_a_row(estimator: Estimator) -> float:
    """Products that an answer takes, about."""
    recipe = estimator.recipe_
    return recipe.members * products_a_row(recipe, 1 + len(estimator.reading_.shares))


def rank_correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Spearman's, over what both know; NaN where there is nothing to rank.

    >>> rank_correlation(np.array([0.1, 0.5, np.nan, 0.3]), np.array([1.0, 9.0, 2.0, 3.0]))
    1.0
    """
    known = ~(np.isnan(one) | np.isnan(other))
    if not known.any() or np.ptp(one[known]) == 0 or np.ptp(other[known]) == 0:
        return float("nan")
    return float(spearmanr(one[known], other[known]).statistic)  # pyright: ignore[reportAttributeAccessIssue]


def lost_by_shuffling(
    rows: Rows,
    reading: Reading,
    columns: Iterable[int],
    *,
    loss: Callable[[Rows], float],
    dice: torch.Generator,
    repeats: int = 1,
) -> np.ndarray:
    """(all columns, repeats): how much larger a loss is with a column's cells dealt out anew; NaN for other columns.

    What a row has of one column stays together. Columns that tell one choice share evenly what it costs.
    """
    shares, whole, device = reading.shares, loss(rows), rows.numbers.device
    found = np.full((shares.shape[1], repeats), np.nan)
    for column in columns:
        own = torch.from_numpy(shares[:, column] > 0).to(device)
        for repeat in range(repeats):
            others = rows.take(torch.randperm(len(rows), generator=dice).to(device))
            found[column, repeat] = loss(rows.mixed(own, others)) - whole
    return found * shares.max(0)[:, None]


def _by_column(tokens: np.ndarray, estimator: Estimator, *, mean: bool = False) -> np.ndarray:
    """(…, tokens) to (…, columns): what falls on the tokens of a column is added up, or the mean of it is taken."""
    reading = estimator.reading_
    shares = reading.shares[reading.numbers if isinstance(estimator.model_, TabTransformer) else 0 :]
    whole = shares.sum(0)
    found = tokens @ (shares / np.where(whole > 0, whole, 1) if mean else shares)
    found[..., whole == 0] = np.nan
    return found


def _depth(model: nn.Module) -> int:
    return len(model.blocks)  # pyright: ignore[reportArgumentType]


def _check_looks(model: nn.Module) -> None:
    if not _depth(model):
        raise ConfigError("a TabTransformer looks at categories, and this table has none. Use importances(X, y).")
