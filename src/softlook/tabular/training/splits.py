"""Validation splits: folds, groups, and time order."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_consistent_length, column_or_1d

from softlook.base.errors import ConfigError
from softlook.tabular.formatting import join_names
from softlook.tabular.io.frames import to_frame
from softlook.tabular.preprocessing.column_types import infer_column_type
from softlook.tabular.training.row_store import validation_mask

NEVER = -1
"""Fold of rows that are always in training."""
Split = tuple[np.ndarray, np.ndarray]
"""Training and validation rows of a fold."""


@dataclass(frozen=True)
class SplitKeys:
    """Classes, groups or times of the rows, by which validation rows are selected; None if not used."""

    codes: np.ndarray | None
    groups: np.ndarray | None = None
    times: np.ndarray | None = None

    @staticmethod
    def of(X: Any, *, codes: np.ndarray | None, groups: Any, time_column: Any) -> "SplitKeys":
        """Check groups, and read the column of times."""
        if groups is not None and time_column is not None:
            raise ConfigError("expected groups or time_column, got both. Validation rows are selected by one of them.")
        if groups is None:
            times = None if time_column is None else read_times(X, time_column)
            if times is not None and times.min() == times.max():
                raise ConfigError(
                    f"time_column: expected different times in {time_column!r:.80}; all rows have the same."
                )
            return SplitKeys(codes, None, times)
        groups = column_or_1d(groups)
        check_consistent_length(X, groups)
        if len(np.unique(groups)) < 2:
            raise ConfigError(
                "groups: expected at least 2 groups, got 1. Each group is either in training or in validation."
            )
        return SplitKeys(codes, groups)

    def take(self, rows: np.ndarray) -> "SplitKeys":
        """Those of some rows."""
        return SplitKeys(*(None if one is None else one[rows] for one in (self.codes, self.groups, self.times)))

    def mask(self, rows: int, fraction: float, seed: int) -> np.ndarray:
        """True for one split's validation rows: the latest ones, whole groups, or random rows of every class."""
        if self.times is not None:
            return latest_mask(self.times, fraction)
        if self.groups is not None:
            return group_mask(self.groups, fraction, seed=seed)
        return validation_mask(rows, fraction, seed=seed, codes=self.codes)

    def folds(self, rows: int, count: int, seed: int) -> list[Split]:
        """Training and validation rows of each fold."""
        count = count if self.groups is None else min(count, len(np.unique(self.groups)))
        assigned = assign_folds(rows, count, seed=seed, codes=self.codes, groups=self.groups)
        return [split for split in fold_indices(assigned, range(count)) if len(split[1])]


def read_times(X: Any, column: Any) -> np.ndarray:
    """(N,) numbers that order the rows by a column of dates or numbers; a missing time is the earliest.

    >>> read_times([["2024-02-29", 1], ["2023-01-01", 2]], 1)
    array([1., 2.])
    """
    frame = to_frame(X)
    index = column if isinstance(column, int) else frame.names.index(column) if column in frame.names else -1
    if not 0 <= index < len(frame.names):
        raise ConfigError(f"time_column: there is no column {column!r:.80}. Columns: {join_names(frame.names)}")
    cells = frame.column(index)
    kind = infer_column_type(cells).column_type
    if kind == "date":
        times = cells.timestamps()
        return np.where(times.is_valid, times.micros, np.iinfo(np.int64).min)
    if kind != "number":
        raise ConfigError(f"time_column: expected dates or numbers in {column!r:.80}; got a {kind} column")
    return np.nan_to_num(cells.floats(), nan=-np.inf)


def assign_folds(
    rows: int, folds: int, *, seed: int, codes: np.ndarray | None = None, groups: np.ndarray | None = None
) -> np.ndarray:
    """(N,) the fold in which each row is validated. With `codes` the folds are stratified.

    A class of one row stays in training (`NEVER`). With `groups`, all rows of a group are in the same fold.

    >>> np.bincount(assign_folds(10, 5, seed=0)).tolist()
    [2, 2, 2, 2, 2]
    >>> assign_folds(6, 2, seed=0, groups=np.array([7, 7, 7, 8, 8, 8]))
    array([1, 1, 1, 0, 0, 0])
    """
    rng = np.random.RandomState(seed)
    if groups is not None:
        return _group_folds(groups, folds, rng)
    codes = np.zeros(rows, dtype=np.int64) if codes is None else codes
    order = rng.permutation(rows)
    by_class = order[np.argsort(codes[order], kind="stable")]
    assigned = np.empty(rows, dtype=np.int64)
    assigned[by_class] = np.arange(rows) % folds  # continues over classes, so that all folds have the same size
    counts = np.bincount(codes)
    assigned[counts[codes] < 2] = NEVER
    return assigned


def group_mask(groups: np.ndarray, fraction: float, *, seed: int) -> np.ndarray:
    """True for validation rows: whole groups, of about this fraction of the rows.

    >>> group_mask(np.repeat(np.arange(10), 3), 0.2, seed=0).sum()
    np.int64(6)
    """
    folds = max(2, round(1 / fraction))
    return assign_folds(len(groups), folds, seed=seed, groups=groups) == 0


def latest_mask(times: np.ndarray, fraction: float) -> np.ndarray:
    """True for validation rows: the latest ones. Rows of equal time are not separated.

    >>> latest_mask(np.array([3, 1, 2, 5, 4]), 0.2)
    array([False, False, False,  True, False])
    """
    last = np.sort(times)[max(0, int(len(times) * (1 - fraction)) - 1)]
    mask = times > last
    return mask if mask.any() else times == times.max()


def fold_indices(assigned: np.ndarray, numbers: Sequence[int]) -> list[Split]:
    """Training and validation rows of each fold.

    >>> fold_indices(np.array([0, 1, 0]), [1])
    [(array([0, 2]), array([1]))]
    """
    return [(np.flatnonzero(assigned != number), np.flatnonzero(assigned == number)) for number in numbers]


def _group_folds(groups: np.ndarray, folds: int, rng: np.random.RandomState) -> np.ndarray:
    """The largest groups first, each into the smallest fold."""
    names, index, counts = np.unique(groups, return_inverse=True, return_counts=True)
    shuffled = rng.permutation(len(names))
    sizes, fold_of = np.zeros(folds), np.empty(len(names), dtype=np.int64)
    for group in shuffled[np.argsort(-counts[shuffled], kind="stable")]:
        fold_of[group] = sizes.argmin()
        sizes[sizes.argmin()] += counts[group]
    return fold_of[index]
