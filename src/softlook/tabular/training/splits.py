"""Validation splits: folds, groups, and time order."""

from collections.abc import Sequence

import numpy as np

NEVER = -1
"""Fold of rows that are always in training."""


def assign_folds(
    rows: int, folds: int, *, seed: int, codes: np.ndarray | None = None, groups: np.ndarray | None = None
) -> np.ndarray:
    """(N,) the fold in which each row is validated. With `codes` the folds are stratified.

    A class of one row stays in training (`NEVER`). With `groups`, all rows of a group are in the same fold.

    >>> np.bincount(assign_folds(10, 5, seed=0)).tolist()
    [2, 2, 2, 2, 2]
    >>> assign_folds(6, 2, seed=0, groups=np.array([7, 7, 7, 8, 8, 8]))
    array([0, 0, 0, 1, 1, 1])
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
    order = np.sort(times)
    return times > order[min(len(order) - 1, int(len(order) * (1 - fraction)) - 1)]


def fold_indices(assigned: np.ndarray, numbers: Sequence[int]) -> list[tuple[np.ndarray, np.ndarray]]:
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
