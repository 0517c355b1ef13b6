"""Which rows are held out: by chance, and of each class its share."""

import numpy as np


def held_out(rows: int, share: float, *, seed: int, codes: np.ndarray | None = None) -> np.ndarray:
    """True for the rows that are held out. With `codes` each class gives its share; a class of one row keeps it.

    >>> held_out(10, 0.2, seed=0).sum()
    np.int64(2)
    >>> kept = held_out(100, 0.2, seed=0, codes=np.repeat([0, 1], [90, 10]))
    >>> kept[:90].sum(), kept[90:].sum()
    (np.int64(18), np.int64(2))
    """
    order = np.random.RandomState(seed).permutation(rows)
    codes = np.zeros(rows, dtype=np.int64) if codes is None else codes
    mixed = order[np.argsort(codes[order], kind="stable")]  # class after class, each in an order of chance
    counts = np.bincount(codes)
    place = np.arange(rows) - np.repeat(np.cumsum(counts) - counts, counts)
    taken = np.minimum(np.floor(counts * share + 0.5), np.maximum(counts - 1, 0))
    kept = np.zeros(rows, dtype=bool)
    kept[mixed] = place < np.repeat(taken, counts)
    return kept
