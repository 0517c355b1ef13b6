"""Scaling of numeric features: quantile or standard."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import pyarrow as pa
from scipy.special import ndtri

from softlook.base.errors import ConfigError
from softlook.tabular.presets import ScalingMethod

NOISE = 1e-3
MAX_ROWS = 100_000
"""Rows to fit quantiles on."""
CLIP = 1e-7
"""Values outside the training range become the quantile 1e-7 or 1 - 1e-7: 5.2 standard deviations from the mean."""
PROBE_ROWS, FEW_DISTINCT = 4096, 256
"""If the first rows hold few distinct numbers, each distinct number is transformed once."""


@dataclass(frozen=True)
class NumericScaler:
    """Per-column scaling. Missing numbers stay missing, constant columns become 0.

    >>> scaler = NumericScaler.fit(np.array([[1.0], [3.0], [np.nan]]), method="standard")
    >>> scaler.transform(np.array([[2.0], [4.0], [np.nan]])).tolist()
    [[0.0], [2.0], [nan]]
    """

    method: ScalingMethod
    locations: np.ndarray
    """quantile: (F, quantiles) values at the quantiles; standard: (F,) means."""
    scales: np.ndarray
    """(F,) standard deviations, 0 for constant columns."""

    @classmethod
    def fit(cls, numbers: np.ndarray, *, method: ScalingMethod = "quantile", seed: int = 0) -> "NumericScaler":
        """Fit the scaling of each column.

        "quantile" maps each column to a normal distribution as in the FT-Transformer paper: one quantile per 30 rows,
        at most 1,000, after adding a little noise, which separates equal numbers. "standard" gives mean 0 and standard
        deviation 1.
        """
        if method not in get_args(ScalingMethod):
            raise ConfigError(f"scaling: expected 'quantile', 'standard' or 'none'; got {method!r}")
        if method == "none":
            return cls(method, np.zeros(numbers.shape[1]), np.ones(numbers.shape[1]))
        scales = np.array([_std(column) for column in numbers.T], np.float64)
        if method == "standard":
            means = [_present(column).mean() if scale else 0.0 for column, scale in zip(numbers.T, scales, strict=True)]
            return cls(method, np.array(means, np.float64), scales)
        return cls(method, _fit_quantiles(numbers, scales, np.random.default_rng(seed)), scales)

    def transform(self, numbers: np.ndarray) -> np.ndarray:
        """(N, F) float32."""
        if self.method == "none":
            return numbers.astype(np.float32)
        scaled = np.empty(numbers.shape, np.float32)
        for index, column in enumerate(numbers.T):
            scaled[:, index] = self._transform_column(column, index)
        return scaled

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """JSON values and arrays from which `from_state` restores the scaler."""
        return {"method": self.method}, {"locations": self.locations, "scales": self.scales}

    @classmethod
    def from_state(cls, values: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> "NumericScaler":
        """The scaler with this `state`."""
        return cls(values["method"], arrays["locations"], arrays["scales"])

    def _transform_column(self, column: np.ndarray, index: int) -> np.ndarray:
        if self.scales[index] == 0.0:
            return np.where(np.isnan(column), np.nan, 0.0)
        if self.method == "standard":
            return (column.astype(np.float64) - self.locations[index]) / self.scales[index]
        if len(column) <= PROBE_ROWS or len(np.unique(column[:PROBE_ROWS])) > FEW_DISTINCT:
            return _to_normal(column.astype(np.float64), self.locations[index])
        encoded = pa.array(np.ascontiguousarray(column)).dictionary_encode()
        distinct = encoded.dictionary.to_numpy().astype(np.float64)
        return _to_normal(distinct, self.locations[index])[encoded.indices.to_numpy()]


def _to_normal(column: np.ndarray, locations: np.ndarray) -> np.ndarray:
    levels = np.linspace(0, 1, len(locations))
    quantiles = np.interp(column, locations, levels)
    if (np.diff(locations) == 0).any():  # a number that spans several quantiles gets their midpoint
        quantiles = 0.5 * (quantiles - np.interp(-column, -locations[::-1], -levels[::-1]))
    return ndtri(np.clip(quantiles, CLIP, 1 - CLIP))


def _fit_quantiles(numbers: np.ndarray, scales: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    levels = np.linspace(0, 1, max(min(len(numbers) // 30, 1000), 10))
    if len(numbers) > MAX_ROWS:
        numbers = numbers[np.sort(rng.choice(len(numbers), MAX_ROWS, replace=False))]
    locations = np.zeros((numbers.shape[1], len(levels)))
    for index, (column, scale) in enumerate(zip(numbers.T, scales, strict=True)):
        present = _present(column)
        if scale and len(present):
            # the paper's noise, limited so that it does not drown a narrow column
            noise = min(NOISE / scale, 10 * NOISE * scale)
            locations[index] = np.quantile(present + noise * rng.standard_normal(len(present)), levels)
    return locations


def _present(column: np.ndarray) -> np.ndarray:
    return column[~np.isnan(column)].astype(np.float64)


def _std(column: np.ndarray) -> float:
    """The standard deviation; exactly 0 if all numbers are equal, whatever rounding gives."""
    present = _present(column)
    return float(present.std()) if len(present) and present.min() < present.max() else 0.0
