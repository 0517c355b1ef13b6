"""Which rows are held out."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from softlook.tabular.training.splitting import validation_mask


@given(st.lists(st.integers(0, 3), min_size=1, max_size=200), st.floats(0, 0.9), st.integers(0, 99))
def test_every_class_gives_its_share_and_keeps_a_row(labels: list[int], share: float, seed: int) -> None:
    codes = np.unique(labels, return_inverse=True)[1]
    held = validation_mask(len(codes), share, seed=seed, codes=codes)
    for code in range(codes.max() + 1):
        count, taken = (codes == code).sum(), held[codes == code].sum()
        assert taken < count
        assert abs(taken - share * count) <= 1


def test_the_same_seed_holds_out_the_same_rows_and_another_others() -> None:
    one, same, other = (validation_mask(100, 0.3, seed=seed) for seed in (1, 1, 2))
    assert (one == same).all() and (one != other).any()
