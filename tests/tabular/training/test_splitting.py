"""Validation splits."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from softlook.tabular.training.splitting import validation_mask


@given(st.lists(st.integers(0, 3), min_size=1, max_size=200), st.floats(0, 0.9), st.integers(0, 99))
def test_the_split_is_stratified_and_every_class_keeps_a_training_row(
    labels: list[int], fraction: float, seed: int
) -> None:
    codes = np.unique(labels, return_inverse=True)[1]
    mask = validation_mask(len(codes), fraction, seed=seed, codes=codes)
    for code in range(codes.max() + 1):
        count, taken = (codes == code).sum(), mask[codes == code].sum()
        assert taken < count
        assert abs(taken - fraction * count) <= 1


def test_the_seed_determines_the_split() -> None:
    one, same, other = (validation_mask(100, 0.3, seed=seed) for seed in (1, 1, 2))
    assert (one == same).all() and (one != other).any()
