"""Numeric and ordinal columns as floats, and their scaling."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import pyarrow as pa
from scipy.special import ndtri

from softlook.base.errors import ConfigError
from softlook.tabular.formatting import describe_column, fraction, join_names
from softlook.tabular.io.arrow import pc
from softlook.tabular.io.column import Column
from softlook.tabular.io.frames import from_python_values
from softlook.tabular.presets import ScalingMethod

MAX_FLOAT32 = float(np.finfo(np.float32).max)
OFFSET_RATIO = 256
"""A column this many times farther from zero than it is wide is centered, so that float32 resolves it."""
HUGE, TINY = 1e30, 1e-30
NOISE = 1e-3
MAX_ROWS = 100_000
"""Rows to fit quantiles on."""
CLIP = 1e-7
"""Values outside the training range become the quantile 1e-7 or 1 - 1e-7: 5.2 standard deviations from the mean."""
PROBE_ROWS, FEW_DISTINCT = 4096, 256
"""If the first rows hold few distinct numbers, each distinct number is transformed once."""


@dataclass(frozen=True)
class NumericEncoder:
    """Encoder of a numeric column: unchanged, unless float32 cannot represent or resolve it."""

    name: str
    offset: float = 0.0
    unit: float = 1.0
    missing: float = 0.0
    """Fraction of missing cells."""
    constant: float | None = None
    """The value, if there is only one."""
    note: str = ""
    """How the type was inferred, if that is worth reporting."""

    column_type: ClassVar[Literal["number"]] = "number"
    cardinality: ClassVar[None] = None
    features = ("",)

    @classmethod
    def fit(cls, column: Column, *, note: str = "") -> "NumericEncoder":
        """Range and missing fraction of a column."""
        floats = column.floats()
        present = floats[~np.isnan(floats)]
        missing = fraction(len(floats) - len(present), len(floats))
        if not len(present):
            return cls(column.name, missing=1.0, note=note)
        lowest, highest = float(present.min()), float(present.max())
        offset, unit = _offset_and_unit(lowest, highest)
        return cls(column.name, offset, unit, missing, lowest if lowest == highest else None, note)

    @property
    def is_identity(self) -> bool:
        """Whether float32 holds the numbers unchanged."""
        return self.offset == 0.0 and self.unit == 1.0

    def encode(self, column: Column) -> np.ndarray:
        """(N, 1) float32, NaN for missing cells."""
        if self.missing == 1.0 and column.value_type not in ("number", "boolean"):
            return np.full((len(column), 1), np.nan, np.float32)  # nothing is known of the column, so nothing is wrong
        floats = column.floats()
        if not self.is_identity:
            with np.errstate(over="ignore"):
                floats = (floats - self.offset) / self.unit
        return np.clip(floats, -MAX_FLOAT32, MAX_FLOAT32).astype(np.float32)[:, None]

    def describe(self) -> str:
        """One line about the column."""
        constant = "" if self.constant is None else f"always {self.constant:g}"
        return describe_column(self.name, self.column_type, self.note, constant, missing=self.missing)


def _offset_and_unit(lowest: float, highest: float) -> tuple[float, float]:
    farthest, width = max(abs(lowest), abs(highest)), highest / 2 - lowest / 2
    offset = lowest + width if width > 0 and farthest > OFFSET_RATIO * 2 * width else 0.0
    largest = width if offset else farthest
    return offset, largest if largest > HUGE or 0 < largest < TINY else 1.0


@dataclass(frozen=True)
class OrdinalEncoder:
    """Encoder of an ordered categorical column: each value is its rank, 0, 1, 2, ..."""

    name: str
    values: tuple[str, ...]
    missing: float = 0.0

    column_type: ClassVar[Literal["ordinal"]] = "ordinal"
    cardinality: ClassVar[None] = None
    features = ("",)

    @classmethod
    def fit(cls, column: Column, order: Sequence[Any] | None) -> "OrdinalEncoder":
        """With the given order, or the table's own."""
        values = resolve_order(column, order)
        strings = column.strings()
        unknown = [value for value in strings.values.to_pylist() if value not in set(values)]
        if unknown:
            raise ConfigError(
                f"ordinal_categories: {column.name!r} holds {join_names(unknown)}, which are not in its order: "
                f"{join_names(values)}"
            )
        return cls(column.name, values, fraction(int((strings.codes < 0).sum()), len(column)))

    def encode(self, column: Column) -> np.ndarray:
        """(N, 1) float32 ranks, NaN for missing or unknown values."""
        strings = column.strings()
        ranks = pc.index_in(strings.values, value_set=pa.array(self.values, pa.large_string()))
        table = np.append(ranks.cast(pa.float32()).to_numpy(zero_copy_only=False), np.float32(np.nan))
        return table.astype(np.float32)[strings.codes][:, None]

    def describe(self) -> str:
        """One line about the column."""
        order = " < ".join(self.values[:6]) + " < ..." * (len(self.values) > 6)
        return describe_column(self.name, self.column_type, order, missing=self.missing)


def resolve_order(column: Column, order: Sequence[Any] | None) -> tuple[str, ...]:
    """The values of a column in order, as strings."""
    if order is None and column.category_order is None:
        raise ConfigError(
            f"column_types: {column.name!r} is ordinal and has no order. "
            f"Give it as ordinal_categories={{{column.name!r}: [low, ..., high]}}"
        )
    values = column.category_order if order is None else from_python_values(column.name, list(order))
    strings = Column(column.name, values).strings()
    listed = strings.values.take(pa.array(strings.codes[strings.codes >= 0])).to_pylist()
    if len(set(listed)) < len(strings.codes) or not listed:
        raise ConfigError(
            f"ordinal_categories: the order of {column.name!r} is empty, or has a duplicate or missing value"
        )
    return tuple(listed)


# --- scaling ----------------------------------------------------------------------------------------------------------


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
