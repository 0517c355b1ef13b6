"""Numbers brought to one scale before a model sees them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import pyarrow as pa
from scipy.special import ndtri

from softlook.base.errors import ConfigError
from softlook.tabular.defaults import ScalingName

NOISE = 1e-3
MOST = 100_000
"""Rows that quantiles are taken of."""
EDGE = 1e-7
"""What lies outside of the known range becomes the quantile 1e-7 or 1 - 1e-7: 5.2 deviations from the middle."""
LOOK, FEW = 4096, 256
"""Where the first rows hold few distinct numbers, each distinct one is worked out once."""


@dataclass(frozen=True)
class Scaling:
    """How each column of numbers is brought to one scale. Missing numbers stay missing, constant ones become 0.

    >>> scaling = Scaling.fit(np.array([[1.0], [3.0], [np.nan]]), kind="standard")
    >>> scaling.apply(np.array([[2.0], [4.0], [np.nan]])).tolist()
    [[0.0], [2.0], [nan]]
    """

    kind: ScalingName
    places: np.ndarray
    """quantile: (F, quantiles), the number at each; standard: (F,) means."""
    widths: np.ndarray
    """(F,) deviations, 0 where a column is always the same."""

    @classmethod
    def fit(cls, numbers: np.ndarray, *, kind: ScalingName = "quantile", seed: int = 0) -> "Scaling":
        """Learn the scale of each column.

        By quantiles each column becomes normal, as the FT-Transformer paper has it: one quantile for 30 rows and at
        most 1,000, taken after a little noise, which lets equal numbers spread. By standard its mean becomes 0 and its
        deviation 1.
        """
        if kind not in get_args(ScalingName):
            raise ConfigError(f"scaling: {kind!r}. It may be 'quantile', 'standard' or 'none'")
        if kind == "none":
            return cls(kind, np.zeros(numbers.shape[1]), np.ones(numbers.shape[1]))
        widths = np.array([_width(column) for column in numbers.T], np.float64)
        if kind == "standard":
            means = [_present(column).mean() if width else 0.0 for column, width in zip(numbers.T, widths, strict=True)]
            return cls(kind, np.array(means, np.float64), widths)
        return cls(kind, _quantiles(numbers, widths, np.random.default_rng(seed)), widths)

    def apply(self, numbers: np.ndarray) -> np.ndarray:
        """(N, F) float32."""
        if self.kind == "none":
            return numbers.astype(np.float32)
        found = np.empty(numbers.shape, np.float32)
        for place, column in enumerate(numbers.T):
            found[:, place] = self._scaled(column, place)
        return found

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """All of it, as what JSON can hold and as arrays."""
        return {"kind": self.kind}, {"places": self.places, "widths": self.widths}

    @classmethod
    def from_state(cls, facts: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> "Scaling":
        """The scaling whose `state` this is."""
        return cls(facts["kind"], arrays["places"], arrays["widths"])

    def _scaled(self, column: np.ndarray, place: int) -> np.ndarray:
        if self.widths[place] == 0.0:
            return np.where(np.isnan(column), np.nan, 0.0)
        if self.kind == "standard":
            return (column.astype(np.float64) - self.places[place]) / self.widths[place]
        if len(column) <= LOOK or len(np.unique(column[:LOOK])) > FEW:
            return _normal(column.astype(np.float64), self.places[place])
        coded = pa.array(np.ascontiguousarray(column)).dictionary_encode()
        distinct = coded.dictionary.to_numpy().astype(np.float64)
        return _normal(distinct, self.places[place])[coded.indices.to_numpy()]


def _normal(column: np.ndarray, places: np.ndarray) -> np.ndarray:
    marks = np.linspace(0, 1, len(places))
    quantiles = np.interp(column, places, marks)
    if (np.diff(places) == 0).any():  # where several quantiles are one number, the middle of them
        quantiles = 0.5 * (quantiles - np.interp(-column, -places[::-1], -marks[::-1]))
    return ndtri(np.clip(quantiles, EDGE, 1 - EDGE))


def _quantiles(numbers: np.ndarray, widths: np.ndarray, random: np.random.Generator) -> np.ndarray:
    marks = np.linspace(0, 1, max(min(len(numbers) // 30, 1000), 10))
    if len(numbers) > MOST:
        numbers = numbers[np.sort(random.choice(len(numbers), MOST, replace=False))]
    found = np.zeros((numbers.shape[1], len(marks)))
    for place, (column, width) in enumerate(zip(numbers.T, widths, strict=True)):
        present = _present(column)
        if width and len(present):
            # The paper's noise, but never so much that it drowns a narrow column.
            noise = min(NOISE / width, 10 * NOISE * width)
            found[place] = np.quantile(present + noise * random.standard_normal(len(present)), marks)
    return found


def _present(column: np.ndarray) -> np.ndarray:
    return column[~np.isnan(column)].astype(np.float64)


def _width(column: np.ndarray) -> float:
    """The deviation; 0 where all numbers are equal, whatever rounding says."""
    present = _present(column)
    return float(present.std()) if len(present) and present.min() < present.max() else 0.0
