"""Statistics of targets, accumulated over the chunks of a table."""

import numpy as np

from softlook.base.errors import DataError
from softlook.tabular.preprocessing.target import ClassTarget, RegressionTarget


class ClassCounts:
    """Distinct labels and their counts, accumulated over chunks.

    >>> counts = ClassCounts()
    >>> for chunk in (["no", "yes"], ["maybe", "no"]):
    ...     counts.update(np.array(chunk), np.ones(2, dtype=bool))
    >>> counts.target().values.tolist(), counts.counts.tolist()
    (['maybe', 'no', 'yes'], [1, 2, 1])
    """

    def __init__(self) -> None:
        self.values: np.ndarray | None = None
        self.counts = np.zeros(0, np.int64)

    def update(self, y: np.ndarray, is_train: np.ndarray) -> None:
        """Add a chunk, validation rows included."""
        if y.ndim > 1:
            raise DataError("several labels per row require a table that fits in memory. Increase memory_limit.")
        values, counts = np.unique(y, return_counts=True)
        if self.values is not None:
            values, indices = np.unique(np.concatenate([self.values, values]), return_inverse=True)
            counts = np.bincount(indices, np.concatenate([self.counts, counts])).astype(np.int64)
        self.values, self.counts = values, counts

    def target(self) -> ClassTarget:
        assert self.values is not None
        return ClassTarget(self.values)


class RunningMoments:
    """Mean and standard deviation of regression targets, accumulated over chunks.

    >>> moments = RunningMoments()
    >>> for chunk in ([1.0], [3.0]):
    ...     moments.update(np.array(chunk), np.ones(1, dtype=bool))
    >>> moments.target().mean, moments.target().std
    (array([2.]), array([1.]))
    """

    def __init__(self) -> None:
        self.rows, self.current = 0, RegressionTarget(np.zeros(0), np.zeros(0), ())

    def update(self, y: np.ndarray, is_train: np.ndarray) -> None:
        """Add the training rows of a chunk."""
        y = y[is_train]
        if not len(y):
            return
        chunk, before = RegressionTarget.fit(y), self.current
        rows, self.rows = self.rows, self.rows + len(y)
        if not rows:
            self.current = chunk
            return
        weight = len(y) / self.rows
        difference = chunk.mean - before.mean
        std = np.hypot(np.sqrt(1 - weight) * before.std, np.sqrt(weight) * chunk.std)
        std = np.hypot(std, np.sqrt(weight * (1 - weight)) * np.abs(difference))
        self.current = RegressionTarget(before.mean + weight * difference, std, chunk.shape)

    def target(self) -> RegressionTarget:
        return self.current


TargetStats = ClassCounts | RunningMoments
