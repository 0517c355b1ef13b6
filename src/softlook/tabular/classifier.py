"""Classes for rows: FT-Transformer and TabTransformer as scikit-learn's classifiers."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted

from softlook.base.errors import ConfigError
from softlook.tabular.checking import checked_class_weights, checked_labels
from softlook.tabular.defaults import Family, Recipe, Watched
from softlook.tabular.encoding.tallying import ClassTally, Tally
from softlook.tabular.encoding.targets import Classes
from softlook.tabular.estimator import TableEstimator
from softlook.tabular.parameters import explained
from softlook.tabular.sources.pieces import is_pieces

ClassWeight = Mapping[Any, float] | Literal["balanced"] | None


class TableClassifier(ClassifierMixin, TableEstimator):
    """What both classifiers share."""

    class_weight: ClassWeight
    targets_: Classes  # pyright: ignore[reportIncompatibleVariableOverride]  (of both, this one)

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, validation: tuple[Any, Any] | None = None
    ) -> "TableClassifier":
        """Learn from a table and its labels: words, whole numbers, truths or dates, one a row and none missing.

        X: pandas, polars, pyarrow, numpy, or a list of rows. `sample_weight` has what each row weighs: one that weighs
        nothing is as if it were not there. `validation=(X, y)` are rows to stop by; where none come, a share is held
        out. X may also be a path, paths, frames one after another, or a function that gives such; then y and
        `sample_weight` are names of columns, and what does not fit `memory_limit` goes by way of a temporary folder.
        """
        self._fit(X, y, sample_weight, validation)
        return self

    @property
    def classes_(self) -> np.ndarray:
        """The labels, in order."""
        check_is_fitted(self, "targets_")
        return self.targets_.values

    def predict_proba(self, X: Any) -> np.ndarray:
        """(N, classes): how likely each class is, in the order of `classes_`."""
        return self._answers(X)

    def predict(self, X: Any) -> np.ndarray:
        """(N,): the likeliest class."""
        return self._named(self._answers(X))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of right answers; of a table in pieces, y is the name of its target."""
        if not is_pieces(X):
            return super().score(X, y, sample_weight)
        wanted, answered, weight = self._scored(X, y, sample_weight)
        return float(accuracy_score(wanted, answered, sample_weight=weight))

    def _named(self, answers: np.ndarray) -> np.ndarray:
        return self.targets_.values[answers.argmax(1)]

    def _checked_y(self, X: Any, y: Any) -> np.ndarray:
        return checked_labels(self, X, y)

    def _targets(self, y: np.ndarray, learned: np.ndarray) -> Classes:
        return Classes.of(y)

    def _tally(self) -> ClassTally:
        return ClassTally()

    def _class_weights(self, y: np.ndarray) -> np.ndarray | None:
        if self.class_weight is None:
            return None
        return self._weights_by(np.bincount(self.targets_.encode(y), minlength=len(self.targets_.values)))

    def _tallied_weights(self, tally: Tally) -> np.ndarray | None:
        assert isinstance(tally, ClassTally)
        counts = np.zeros(len(self.targets_.values), np.int64)
        counts[self.targets_.encode(tally.targets().values)] = tally.counts
        return None if self.class_weight is None else self._weights_by(counts)

    def _weights_by(self, counts: np.ndarray) -> np.ndarray:
        if isinstance(self.class_weight, Mapping):
            return checked_class_weights(self.class_weight, self.targets_.values.tolist())
        if self.class_weight != "balanced":
            raise ConfigError(f"class_weight is 'balanced', or a weight for each class; {self.class_weight!r} came")
        return counts.sum() / (np.count_nonzero(counts) * np.maximum(counts, 1))

    def _score_of(self, answers: np.ndarray, y: np.ndarray) -> float:
        return float((self._named(answers) == y).mean())


@explained
class FTTransformerClassifier(TableClassifier):
    """Classes for the rows of a table by an FT-Transformer: every column is a token, and [CLS] looks at all of them.

    `recipe="ours"` bends the tokens of numbers and lets members answer together; "paper" is Gorishniy et al. (2021).
    Whatever is None is the recipe's. Part of the rows is held out to stop in time, and the best weights are kept. The
    same `random_state` gives the same bits on a CPU with the same number of threads.

    >>> X, y = [[0.1, "a"], [0.9, "b"]] * 20, ["low", "high"] * 20
    >>> model = FTTransformerClassifier(dim=16, depth=1, heads=2, epochs=30, random_state=0).fit(X, y)
    >>> model.predict([[0.1, "a"], [0.9, "b"]])
    array(['low', 'high'], dtype='<U4')
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
        watch: Watched | None = None,
        validation_share: float = 0.2,
        time_limit: float | None = None,
        memory_limit: float | None = None,
        class_weight: ClassWeight = None,
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
class TabTransformerClassifier(TableClassifier):
    """Classes for rows of a table by a TabTransformer: categories look at one another, numbers join them at the end.

    Without categories it is a network of plain layers on the numbers. `recipe="paper"` is Huang et al. (2020).

    >>> X, y = [[0.1, "a"], [0.9, "b"]] * 20, [False, True] * 20
    >>> model = TabTransformerClassifier(depth=1, epochs=30, random_state=0).fit(X, y)
    >>> model.predict([[0.1, "a"], [0.9, "b"]])
    array([False,  True])
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
        watch: Watched | None = None,
        validation_share: float = 0.2,
        time_limit: float | None = None,
        memory_limit: float | None = None,
        class_weight: ClassWeight = None,
        kinds: Mapping[str, str] | None = None,
        ordinal: Mapping[str, list[Any]] | None = None,
        device: str = "auto",
        n_jobs: int | None = None,
        random_state: Any = None,
        warm_start: bool = False,
        verbose: bool | int = False,
    ) -> None:
        self._keep(locals())
