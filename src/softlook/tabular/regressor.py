"""Numbers for rows: FT-Transformer and TabTransformer as scikit-learn's regressors."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from softlook.tabular.checking import checked_amounts
from softlook.tabular.defaults import Family, Recipe
from softlook.tabular.encoding.tallying import AmountTally
from softlook.tabular.encoding.targets import Amounts
from softlook.tabular.estimator import TableEstimator
from softlook.tabular.parameters import explained
from softlook.tabular.sources.pieces import is_pieces


class TableRegressor(RegressorMixin, TableEstimator):
    """What both regressors share."""

    targets_: Amounts  # pyright: ignore[reportIncompatibleVariableOverride]  (of both, this one)

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, validation: tuple[Any, Any] | None = None
    ) -> "TableRegressor":
        """Learn from a table and one number a row, or several: y is (N,) or (N, K).

        X: pandas, polars, pyarrow, numpy, or a list of rows. `sample_weight` has what each row weighs: one that weighs
        nothing is as if it were not there. `validation=(X, y)` are rows to stop by; where none come, a share is held
        out. X may also be a path, paths, frames one after another, or a function that gives such; then y is the name of
        a column or a list of names, `sample_weight` that of one, and what does not fit `memory_limit` goes by way of a
        temporary folder.
        """
        self._fit(X, y, sample_weight, validation)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """(N,) or (N, K): the numbers expected, in the units of y."""
        answers = self._answers(X)
        return self.targets_.read(answers)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R2, the share of the variance that is explained; of a table in pieces, y is the name of its target."""
        if not is_pieces(X):
            return super().score(X, y, sample_weight)
        wanted, answered, weight = self._scored(X, y, sample_weight)
        return float(r2_score(wanted, answered, sample_weight=weight))

    def _checked_y(self, X: Any, y: Any) -> np.ndarray:
        return checked_amounts(self, X, y)

    def _targets(self, y: np.ndarray, learned: np.ndarray) -> Amounts:
        return Amounts.of(y[learned])

    def _tally(self) -> AmountTally:
        return AmountTally()

    def _score_of(self, answers: np.ndarray, y: np.ndarray) -> float:
        return float(r2_score(y, self.targets_.read(answers)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


@explained
class FTTransformerRegressor(TableRegressor):
    """Numbers for the rows of a table by an FT-Transformer: every column is a token, and [CLS] looks at all of them.

    `recipe="ours"` bends the tokens of numbers and lets members answer together; "paper" is Gorishniy et al. (2021).
    Whatever is None is the recipe's. Part of the rows is held out to stop in time, and the best weights are kept. The
    same `random_state` gives the same bits on a CPU with the same number of threads.

    >>> X = np.linspace(-1, 1, 80)[:, None]
    >>> model = FTTransformerRegressor(dim=16, depth=1, heads=2, epochs=100, random_state=0).fit(X, X[:, 0] ** 2)
    >>> bool(abs(model.predict([[0.5]])[0] - 0.25) < 0.1)
    True
    """

    family: ClassVar[Family] = "ft"

    def __init__(  # noqa: PLR0913  (scikit-learn reads the parameters here, each by its name)
        self,
        *,
        recipe: str | Recipe = "ours",
        dim: int | None = None,
        depth: int | None = None,
        heads: int | None = None,
        hidden: int | None = None,
        members: int | None = None,
        number_tokens: str | None = None,
        scaling: str | None = None,
        dropout: float | None = None,
        attention_dropout: float | None = None,
        hidden_dropout: float | None = None,
        lr: float | None = None,
        weight_decay: float | None = None,
        batch_size: int | None = None,
        epochs: int | None = None,
        patience: int | None = None,
        validation_share: float = 0.2,
        time_limit: float | None = None,
        memory_limit: float | None = None,
        kinds: Mapping[str, str] | None = None,
        ordinal: Mapping[str, list[Any]] | None = None,
        device: str = "auto",
        n_jobs: int | None = None,
        random_state: Any = None,
        warm_start: bool = False,
        verbose: bool | int = False,
    ) -> None:
        self._keep(locals())


@explained
class TabTransformerRegressor(TableRegressor):
    """Numbers for rows of a table by a TabTransformer: categories look at one another, numbers join them at the end.

    Without categories it is a network of plain layers on the numbers. `recipe="paper"` is Huang et al. (2020).

    >>> X, y = [["a", 0.1], ["b", 0.1]] * 40, [1.0, 2.0] * 40
    >>> model = TabTransformerRegressor(depth=1, epochs=60, random_state=0).fit(X, y)
    >>> model.predict([["a", 0.1], ["b", 0.1]]).round(1)
    array([1., 2.])
    """

    family: ClassVar[Family] = "tab"

    def __init__(  # noqa: PLR0913  (scikit-learn reads the parameters here, each by its name)
        self,
        *,
        recipe: str | Recipe = "ours",
        dim: int | None = None,
        depth: int | None = None,
        heads: int | None = None,
        scaling: str | None = None,
        dropout: float | None = None,
        lr: float | None = None,
        weight_decay: float | None = None,
        batch_size: int | None = None,
        epochs: int | None = None,
        patience: int | None = None,
        validation_share: float = 0.2,
        time_limit: float | None = None,
        memory_limit: float | None = None,
        kinds: Mapping[str, str] | None = None,
        ordinal: Mapping[str, list[Any]] | None = None,
        device: str = "auto",
        n_jobs: int | None = None,
        random_state: Any = None,
        warm_start: bool = False,
        verbose: bool | int = False,
    ) -> None:
        self._keep(locals())
