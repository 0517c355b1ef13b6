"""Targets from pieces are those of the whole."""

import numpy as np
import pytest

from softlook.tabular.preprocessing.target import ClassCounts, ClassTarget, RegressionTarget, RunningMoments


@pytest.mark.parametrize("size", [1, 7, 100])
@pytest.mark.parametrize("columns", [(), (3,)], ids=["one", "three"])
def test_mean_and_deviation_are_those_of_the_whole(size: int, columns: tuple[int, ...]) -> None:
    dice = np.random.default_rng(0)
    y, learned = 1e6 + dice.normal(size=(100, *columns)), dice.random(100) < 0.7
    tally = RunningMoments()
    for at in range(0, 100, size):
        tally.update(y[at : at + size], learned[at : at + size])
    found, targets = tally.target(), RegressionTarget.fit(y[learned])
    np.testing.assert_allclose(found.mean, targets.mean, rtol=1e-14)
    np.testing.assert_allclose(found.std, targets.std, rtol=1e-9)
    assert found.shape == columns


def test_a_constant_stays_one() -> None:
    tally = RunningMoments()
    for _ in range(3):
        tally.update(np.full(3, 0.1), np.ones(3, dtype=bool))
    assert (tally.target().mean, tally.target().std) == (0.1, 0.0)


@pytest.mark.parametrize(
    "labels",
    [["b", "a", "ccc", "a"], [3, 1, 1, 2], [True, False, True, True], np.array(["b", "a", "ccc", "a"], object)],
    ids=["words", "numbers", "truths", "objects"],
)
def test_labels_are_those_of_the_whole(labels: list[object]) -> None:
    y = np.array(labels)
    tally = ClassCounts()
    for at in range(4):
        tally.update(y[at : at + 1], np.zeros(1, dtype=bool))
    assert tally.target().values.tolist() == ClassTarget.fit(y).values.tolist()
    assert tally.counts.tolist() == np.unique(y, return_counts=True)[1].tolist()
