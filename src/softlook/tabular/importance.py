"""Which columns matter: by what the model looks at, and by what is lost when a column is shuffled."""

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.models.tab_transformer import TabTransformer
from softlook.tabular.reading import Reading
from softlook.tabular.rows import Rows
from softlook.tabular.watching import looks, mean_map


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


class Explaining:
    """What an estimator can say about its columns."""

    def attention_importance(self: Estimator, X: Any) -> np.ndarray:
        """(columns,): how much [CLS] looks at each column, the mean over heads, blocks and rows.

        The FT-Transformer paper's importance (section 5.3). Its authors vouch for the ranks alone: compare it with
        `importances`. What is short of 1 is [CLS]'s look at itself. A TabTransformer has no [CLS]: there it is the look
        of all categories, and numbers, which no block sees, are NaN.
        """
        return self.explain_rows(X).mean(0)  # pyright: ignore[reportAttributeAccessIssue]

    def explain_rows(self: Estimator, X: Any) -> np.ndarray:
        """(N, columns): the same for each row by itself."""
        return self._explained(self._given(X))  # pyright: ignore[reportAttributeAccessIssue]

    def _explained(self: Estimator, rows: Rows) -> np.ndarray:
        _check_looks(self.model_)
        return _by_column(looks(self.model_, rows).cpu().numpy(), self)

    def attention_maps(self: Estimator, X: Any) -> np.ndarray:
        """(columns, columns): how much a column looks at another, the mean over rows, heads and blocks.

        Only [CLS] looks in the last block of an FT-Transformer, so that block is left out.
        """
        rows = self._given(X)
        _check_looks(self.model_)
        if not isinstance(self.model_, TabTransformer) and len(self.model_.blocks) == 1:  # pyright: ignore[reportArgumentType]
            raise ConfigError("in the last block only [CLS] looks, and this model has no other. Use depth=2 or more.")
        given = _by_column(mean_map(self.model_, rows).cpu().numpy(), self)
        return _by_column(given.T, self, mean=True).T

    def importances(self: Estimator, X: Any, y: Any, *, repeats: int = 5, random_state: int = 0) -> Importances:
        """Attention beside permutation importance, and their rank correlation.

        Permutation: how much lower `score` is when a column's cells are dealt out anew among the rows. Columns that
        tell one choice together (`reading_.choices`) are dealt out together, and share what that costs evenly.
        """
        rows, y = self._given(X), self._checked_y(X, y)
        columns = self.reading_.columns.names
        lost = np.empty((len(columns), repeats))
        dice = torch.Generator().manual_seed(random_state)
        whole = self._score_of(self._answers_to(rows), y)
        for column in range(len(columns)):
            for repeat in range(repeats):
                mixed = dealt_anew(rows, self.reading_, column, torch.randperm(len(rows), generator=dice))
                lost[column, repeat] = whole - self._score_of(self._answers_to(mixed), y)
        lost *= self.reading_.shares.max(0)[:, None]
        attention = self.attention_importance(X) if has_looks(self.model_) else np.full(len(columns), np.nan)  # pyright: ignore[reportAttributeAccessIssue]
        permutation = lost.mean(1)
        return Importances(columns, attention, permutation, lost.std(1), rank_correlation(attention, permutation))


def rank_correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Spearman's, over what both know; NaN where there is nothing to rank.

    >>> rank_correlation(np.array([0.1, 0.5, np.nan, 0.3]), np.array([1.0, 9.0, 2.0, 3.0]))
    1.0
    """
    known = ~(np.isnan(one) | np.isnan(other))
    if not known.any() or np.ptp(one[known]) == 0 or np.ptp(other[known]) == 0:
        return float("nan")
    return float(spearmanr(one[known], other[known]).statistic)  # pyright: ignore[reportAttributeAccessIssue]


def dealt_anew(rows: Rows, reading: Reading, column: int, order: Tensor) -> Rows:
    """All cells that come from one column, dealt out anew; those of a row stay together."""
    own = torch.from_numpy(reading.shares[:, column] > 0)
    order = order.to(rows.numbers.device)
    return replace(
        rows,
        numbers=_mixed(rows.numbers, own[: reading.numbers], order),
        categories=_mixed(rows.categories, own[reading.numbers :], order),
    )


def _mixed(cells: Tensor, own: Tensor, order: Tensor) -> Tensor:
    return torch.where(own.to(cells.device), cells[order], cells)


def _by_column(tokens: np.ndarray, estimator: Estimator, *, mean: bool = False) -> np.ndarray:
    """(…, tokens) to (…, columns): what falls on the tokens of a column is added up, or the mean of it is taken."""
    reading = estimator.reading_
    shares = reading.shares[reading.numbers if isinstance(estimator.model_, TabTransformer) else 0 :]
    whole = shares.sum(0)
    found = tokens @ (shares / np.where(whole > 0, whole, 1) if mean else shares)
    found[..., whole == 0] = np.nan
    return found


def has_looks(model: nn.Module) -> bool:
    return len(model.blocks) > 0  # pyright: ignore[reportArgumentType]


def _check_looks(model: nn.Module) -> None:
    if not has_looks(model):
        raise ConfigError("a TabTransformer looks at categories, and this table has none. Use importances(X, y).")
