"""Scaling of numeric features, and its state."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hypothesis_numpy
from sklearn.preprocessing import QuantileTransformer

from softlook.base.errors import ConfigError
from softlook.tabular.preprocessing.numeric import PROBE_ROWS, NumericScaler
from softlook.tabular.presets import ScalingMethod

NUMBER = st.floats(-(2.0**100), 2.0**100, width=32) | st.just(float("nan"))
TABLE = hypothesis_numpy.arrays(np.float32, st.tuples(st.integers(1, 40), st.integers(1, 3)), elements=NUMBER)
METHODS: tuple[ScalingMethod, ...] = ("quantile", "standard", "none")


@given(TABLE, st.sampled_from(METHODS))
def test_exactly_the_missing_numbers_stay_missing(numbers: np.ndarray, method: ScalingMethod) -> None:
    scaled = NumericScaler.fit(numbers, method=method).transform(numbers)
    assert scaled.dtype == np.float32
    assert np.array_equal(np.isnan(scaled), np.isnan(numbers))
    assert not np.isinf(scaled).any()


@given(TABLE, st.sampled_from(METHODS))
def test_scaling_is_monotonic(numbers: np.ndarray, method: ScalingMethod) -> None:
    scaled = NumericScaler.fit(numbers, method=method).transform(numbers)
    for before, after in zip(numbers.T, scaled.T, strict=True):
        order = np.argsort(before, kind="stable")
        present = after[order][~np.isnan(before[order])]
        assert (np.diff(present) >= 0).all()


@given(TABLE, st.sampled_from(METHODS))
def test_a_restored_scaler_gives_bitwise_equal_results(numbers: np.ndarray, method: ScalingMethod) -> None:
    scaler = NumericScaler.fit(numbers, method=method)
    values, arrays = scaler.state()
    restored = NumericScaler.from_state(json.loads(json.dumps(values)), arrays)
    assert restored.transform(numbers).tobytes() == scaler.transform(numbers).tobytes()


@given(TABLE)
def test_rows_are_scaled_independently(numbers: np.ndarray) -> None:
    scaler = NumericScaler.fit(numbers)
    row_by_row = np.concatenate([scaler.transform(numbers[row : row + 1]) for row in range(len(numbers))])
    assert row_by_row.tobytes() == scaler.transform(numbers).tobytes()


def test_quantile_scaling_matches_scikit_learns_normal_quantiles() -> None:
    numbers = np.random.default_rng(0).exponential(3.0, (5000, 2)).astype(np.float32)
    scaled = NumericScaler.fit(numbers).transform(numbers)
    expected = QuantileTransformer(n_quantiles=166, output_distribution="normal", subsample=10**9).fit_transform(
        numbers
    )
    middle = np.abs(expected) < 2.5
    assert np.abs(scaled - expected)[middle].max() < 0.02
    assert abs(scaled.mean()) < 0.05 and abs(scaled.std() - 1) < 0.05


def test_the_shortcut_for_few_distinct_numbers_gives_the_same_result() -> None:
    numbers = np.random.default_rng(0).integers(0, 5, (2 * PROBE_ROWS, 1)).astype(np.float32)
    numbers[::7] = np.nan
    scaler = NumericScaler.fit(numbers)
    expected = np.concatenate([scaler.transform(part) for part in np.split(numbers, 4)])
    assert scaler.transform(numbers).tobytes() == expected.tobytes()


def test_numbers_outside_the_training_range_are_clipped() -> None:
    scaler = NumericScaler.fit(np.arange(100.0)[:, None])
    assert np.allclose(scaler.transform(np.array([[-1e30], [1e30]])), [[-5.2], [5.2]], atol=0.01)


@pytest.mark.parametrize("method", ["quantile", "standard"])
def test_a_constant_column_becomes_zero(method: ScalingMethod) -> None:
    numbers = np.array([[0.1, np.nan], [0.1, np.nan], [0.1, np.nan]], np.float32)
    scaled = NumericScaler.fit(numbers, method=method).transform(np.array([[0.1, 3.0], [7.0, np.nan], [np.nan, 1.0]]))
    assert np.array_equal(scaled, [[0, 0], [0, np.nan], [np.nan, 0]], equal_nan=True)


def test_noise_does_not_dominate_a_narrow_column() -> None:
    numbers = np.linspace(0, 1e-4, 600)[:, None]
    scaled = NumericScaler.fit(numbers).transform(numbers)[:, 0]
    assert scaled.std() > 0.8


def test_the_seed_determines_the_result() -> None:
    numbers = np.random.default_rng(0).normal(size=(200, 2))
    one, same, other = (NumericScaler.fit(numbers, seed=seed).transform(numbers).tobytes() for seed in (1, 1, 2))
    assert one == same != other


def test_a_table_without_numeric_columns_is_supported() -> None:
    assert NumericScaler.fit(np.zeros((5, 0))).transform(np.zeros((3, 0))).shape == (3, 0)


def test_an_unknown_method_is_rejected() -> None:
    with pytest.raises(ConfigError, match="scaling: expected 'quantile', 'standard' or 'none'; got 'minmax'"):
        NumericScaler.fit(np.zeros((2, 1)), method="minmax")  # type: ignore[arg-type]
