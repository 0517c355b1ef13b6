"""Numbers come out on one scale, and what is learned of them can be kept."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from sklearn.preprocessing import QuantileTransformer

from softlook.base.errors import ConfigError
from softlook.tabular.preprocessing.scaling import PROBE_ROWS, NumericScaler
from softlook.tabular.presets import ScalingMethod

NUMBER = st.floats(-(2.0**100), 2.0**100, width=32) | st.just(float("nan"))
TABLE = arrays.arrays(np.float32, st.tuples(st.integers(1, 40), st.integers(1, 3)), elements=NUMBER)
COLUMN_TYPES: tuple[ScalingMethod, ...] = ("quantile", "standard", "none")


@given(TABLE, st.sampled_from(COLUMN_TYPES))
def test_missing_numbers_stay_missing_and_no_others_become_so(numbers: np.ndarray, method: ScalingMethod) -> None:
    scaled = NumericScaler.fit(numbers, method=method).transform(numbers)
    assert scaled.dtype == np.float32
    assert np.array_equal(np.isnan(scaled), np.isnan(numbers))
    assert not np.isinf(scaled).any()


@given(TABLE, st.sampled_from(COLUMN_TYPES))
def test_a_larger_number_never_becomes_a_smaller_one(numbers: np.ndarray, method: ScalingMethod) -> None:
    scaled = NumericScaler.fit(numbers, method=method).transform(numbers)
    for before, after in zip(numbers.T, scaled.T, strict=True):
        order = np.argsort(before, method="stable")
        known = after[order][~np.isnan(before[order])]
        assert (np.diff(known) >= 0).all()


@given(TABLE, st.sampled_from(COLUMN_TYPES))
def test_what_was_kept_scales_the_same_to_the_bit(numbers: np.ndarray, method: ScalingMethod) -> None:
    scaling = NumericScaler.fit(numbers, method=method)
    facts, kept = scaling.state()
    again = NumericScaler.from_state(json.loads(json.dumps(facts)), kept)
    assert again.transform(numbers).tobytes() == scaling.transform(numbers).tobytes()


@given(TABLE)
def test_rows_are_scaled_one_by_one(numbers: np.ndarray) -> None:
    scaling = NumericScaler.fit(numbers)
    alone = np.concatenate([scaling.transform(numbers[row : row + 1]) for row in range(len(numbers))])
    assert alone.tobytes() == scaling.transform(numbers).tobytes()


def test_quantiles_make_any_shape_normal_as_scikit_learn_does() -> None:
    numbers = np.random.default_rng(0).exponential(3.0, (5000, 2)).astype(np.float32)
    scaled = NumericScaler.fit(numbers).transform(numbers)
    judge = QuantileTransformer(n_quantiles=166, output_distribution="normal", subsample=10**9).fit_transform(numbers)
    middle = np.abs(judge) < 2.5
    assert np.abs(scaled - judge)[middle].max() < 0.02
    assert abs(scaled.mean()) < 0.05 and abs(scaled.std() - 1) < 0.05


def test_few_distinct_numbers_take_a_short_cut_to_the_same_result() -> None:
    numbers = np.random.default_rng(0).integers(0, 5, (2 * PROBE_ROWS, 1)).astype(np.float32)
    numbers[::7] = np.nan
    scaling = NumericScaler.fit(numbers)
    slowly = np.concatenate([scaling.transform(part) for part in np.split(numbers, 4)])
    assert scaling.transform(numbers).tobytes() == slowly.tobytes()


def test_numbers_beyond_the_known_ones_are_drawn_in() -> None:
    scaling = NumericScaler.fit(np.arange(100.0)[:, None])
    assert np.allclose(scaling.transform(np.array([[-1e30], [1e30]])), [[-5.2], [5.2]], atol=0.01)


@pytest.mark.parametrize("method", ["quantile", "standard"])
def test_a_column_that_is_always_the_same_becomes_zero(method: ScalingMethod) -> None:
    numbers = np.array([[0.1, np.nan], [0.1, np.nan], [0.1, np.nan]], np.float32)
    scaled = NumericScaler.fit(numbers, method=method).transform(np.array([[0.1, 3.0], [7.0, np.nan], [np.nan, 1.0]]))
    assert np.array_equal(scaled, [[0, 0], [0, np.nan], [np.nan, 0]], equal_nan=True)


def test_a_narrow_column_is_not_drowned_in_noise() -> None:
    numbers = np.linspace(0, 1e-4, 600)[:, None]
    scaled = NumericScaler.fit(numbers).transform(numbers)[:, 0]
    assert scaled.std() > 0.8


def test_the_same_seed_gives_the_same_scale() -> None:
    numbers = np.random.default_rng(0).normal(size=(200, 2))
    one, same, other = (NumericScaler.fit(numbers, seed=seed).transform(numbers).tobytes() for seed in (1, 1, 2))
    assert one == same != other


def test_no_columns_are_no_trouble() -> None:
    assert NumericScaler.fit(np.zeros((5, 0))).transform(np.zeros((3, 0))).shape == (3, 0)


def test_an_unknown_scale_is_refused() -> None:
    with pytest.raises(ConfigError, match="scaling: 'minmax'. It may be 'quantile', 'standard' or 'none'"):
        NumericScaler.fit(np.zeros((2, 1)), method="minmax")  # type: ignore[arg-type]
