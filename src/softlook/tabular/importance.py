"""Which columns matter: by what the model looks at, and by what is lost when a column is shuffled."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.models.tab_transformer import TabTransformer
from softlook.tabular.maps import looks, mean_map
from softlook.tabular.reading import Reading
from softlook.tabular.rows import Rows


@dataclass(frozen=True, eq=False)
class Importances:
    """Two opinions on every column, and how far they agree."""

    names: tuple[str, ...]
    attention: np.ndarray
    """(columns,) share of the look that falls on a column; NaN for one that no block looks at."""
    permutation: np.ndarray
    """(columns,) what the score loses when the column is shuffled, the mean over repeats."""
    spread: np.ndarray
    """(columns,) the deviation of that over repeats."""
    correlation: float
    """Spearman's rank correlation between both; NaN where one of them sees no difference between columns."""


class Estimator(Protocol):
    """What is asked of an estimator here."""

    model_: nn.Module
    reading_: Reading

    def _given(self, X: Any) -> Rows: ...
    def _answers_to(self, rows: Rows) -> np.ndarray: ...
    def _score_of(self, answers: np.ndarray, y: np.ndarray) -> float: ...
    def _checked_y(self, X: Any, y: Any) -> np.ndarray: ...
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
        many repeats. Columns that tell one choice together (`reading_.choices`) share what that costs evenly.
        """
        rows, y, names = self._given(X), self._checked_y(X, y), self.reading_.columns.names
        dice = torch.Generator().manual_seed(random_state)

        def loss(some: Rows) -> float:
            return -self._score_of(self._answers_to(some), y)

        lost = lost_by_shuffling(rows, self.reading_, range(len(names)), loss=loss, dice=dice, repeats=repeats)
        attention, permutation = self._attention(rows), lost.mean(1)
        return Importances(names, attention, permutation, lost.std(1), rank_correlation(attention, permutation))


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
    shares, whole = reading.shares, loss(rows)
    found = np.full((shares.shape[1], repeats), np.nan)
    for column in columns:
        own = torch.from_numpy(shares[:, column] > 0)
        for repeat in range(repeats):
            found[column, repeat] = loss(_dealt_anew(rows, own, torch.randperm(len(rows), generator=dice))) - whole
    return found * shares.max(0)[:, None]


def _dealt_anew(rows: Rows, own: Tensor, order: Tensor) -> Rows:
    """The rows with some of their tokens, numbers before categories, as other rows have them."""
    device = rows.numbers.device
    own, other = own.to(device), rows.take(order.to(device))
    numbers, categories = own.tensor_split([rows.numbers.shape[1]])
    return replace(
        rows,
        numbers=torch.where(numbers, other.numbers, rows.numbers),
        categories=torch.where(categories, other.categories, rows.categories),
    )


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
