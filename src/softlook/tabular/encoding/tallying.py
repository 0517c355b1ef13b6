"""What is to be predicted, learned from pieces as they pass by."""

import numpy as np

from softlook.tabular.encoding.targets import Amounts, Classes


class ClassTally:
    """Which labels there are, and how often each.

    >>> tally = ClassTally()
    >>> for piece in (["no", "yes"], ["maybe", "no"]):
    ...     tally.add(np.array(piece), np.ones(2, dtype=bool))
    >>> tally.targets().values.tolist(), tally.counts.tolist()
    (['maybe', 'no', 'yes'], [1, 2, 1])
    """

    def __init__(self) -> None:
        self.values: np.ndarray | None = None
        self.counts = np.zeros(0, np.int64)

    def add(self, y: np.ndarray, learned: np.ndarray) -> None:
        """A piece; rows that are held out count as well."""
        values, counts = np.unique(y, return_counts=True)
        if self.values is not None:
            values, places = np.unique(np.concatenate([self.values, values]), return_inverse=True)
            counts = np.bincount(places, np.concatenate([self.counts, counts])).astype(np.int64)
        self.values, self.counts = values, counts

    def targets(self) -> Classes:
        assert self.values is not None
        return Classes(self.values)


class AmountTally:
    """Mean and deviation of each target, from the means and deviations of pieces.

    >>> tally = AmountTally()
    >>> for piece in ([1.0], [3.0]):
    ...     tally.add(np.array(piece), np.ones(1, dtype=bool))
    >>> tally.targets().middle, tally.targets().spread
    (array([2.]), array([1.]))
    """

    def __init__(self) -> None:
        self.rows, self.known = 0, Amounts(np.zeros(0), np.zeros(0), ())

    def add(self, y: np.ndarray, learned: np.ndarray) -> None:
        """A piece, of which rows that are held out do not count."""
        y = y[learned]
        if not len(y):
            return
        piece, before = Amounts.of(y), self.known
        rows, self.rows = self.rows, self.rows + len(y)
        if not rows:
            self.known = piece
            return
        share = len(y) / self.rows
        apart = piece.middle - before.middle
        spread = np.hypot(np.sqrt(1 - share) * before.spread, np.sqrt(share) * piece.spread)
        spread = np.hypot(spread, np.sqrt(share * (1 - share)) * np.abs(apart))
        self.known = Amounts(before.middle + share * apart, spread, piece.shape)

    def targets(self) -> Amounts:
        return self.known


Tally = ClassTally | AmountTally
