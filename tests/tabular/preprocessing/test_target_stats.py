"""Target statistics accumulated over chunks equal those of the whole target."""

import numpy as np
import pytest

from softlook.tabular.preprocessing.target import ClassTarget, RegressionTarget
from softlook.tabular.preprocessing.target_stats import ClassCounts, RunningMoments


@pytest.mark.parametrize("size", [1, 7, 100])
@pytest.mark.parametrize("columns", [(), (3,)], ids=["one", "three"])
def test_mean_and_standard_deviation_equal_those_of_all_rows(size: int, columns: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    y, is_train = 1e6 + rng.normal(size=(100, *columns)), rng.random(100) < 0.7
    moments = RunningMoments()
    for start in range(0, 100, size):
        moments.update(y[start : start + size], is_train[start : start + size])
    actual, expected = moments.target(), RegressionTarget.fit(y[is_train])
    np.testing.assert_allclose(actual.mean, expected.mean, rtol=1e-14)
    np.testing.assert_allclose(actual.std, expected.std, rtol=1e-9)
    assert actual.shape == columns


def test_a_constant_has_zero_standard_deviation() -> None:
    moments = RunningMoments()
    for _ in range(3):
        moments.update(np.full(3, 0.1), np.ones(3, dtype=bool))
    assert (moments.target().mean, moments.target().std) == (0.1, 0.0)


@pytest.mark.parametrize(
    "labels",
    [["b", "a", "ccc", "a"], [3, 1, 1, 2], [True, False, True, True], np.array(["b", "a", "ccc", "a"], object)],
    ids=["strings", "integers", "booleans", "objects"],
)
def test_labels_and_counts_equal_those_of_all_rows(labels: list[object]) -> None:
    y = np.array(labels)
    counts = ClassCounts()
    for start in range(4):
        counts.update(y[start : start + 1], np.zeros(1, dtype=bool))
    assert counts.target().values.tolist() == ClassTarget.fit(y).values.tolist()
    assert counts.counts.tolist() == np.unique(y, return_counts=True)[1].tolist()
