"""Conformal prediction intervals from the residuals of rows that a model was not trained on."""

import math

import numpy as np

from softlook.base.errors import ConfigError

MAX_RESIDUALS = 2_000
"""Residuals that are kept: more would be no more precise."""


def absolute_residuals(predictions: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """(R, K): sorted absolute residuals; evenly spaced ones of very many.

    >>> absolute_residuals(np.array([[1.0], [4.0]]), np.array([[2.0], [1.0]])).tolist()
    [[1.0], [3.0]]
    """
    residuals = np.sort(np.abs(predictions - targets), axis=0)
    if len(residuals) <= MAX_RESIDUALS:
        return residuals
    return residuals[np.linspace(0, len(residuals) - 1, MAX_RESIDUALS).round().astype(int)]


def half_width(residuals: np.ndarray, coverage: float) -> np.ndarray:
    """(K,): the distance within which this fraction of new targets is expected (Vovk et al. 2005).

    >>> half_width(np.arange(1.0, 100.0)[:, None], 0.9).tolist()
    [90.0]
    """
    if not 0 < coverage < 1:
        raise ConfigError(f"coverage: expected a number between 0 and 1; got {coverage!r}")
    rank = math.ceil((len(residuals) + 1) * coverage)
    if rank > len(residuals):
        least = math.ceil(coverage / (1 - coverage))
        raise ConfigError(
            f"coverage={coverage} requires {least:,} validation rows or more; there were {len(residuals):,}"
        )
    return residuals[rank - 1]
