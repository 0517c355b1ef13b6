"""Other people's models on the same rows."""

import numpy as np
import pytest
import torch

from softlook.tabular import baselines as others
from softlook.tabular.baselines import fit_baselines
from softlook.tabular.preprocessing.rows import TableTensors
from softlook.tabular.preprocessing.target import ClassTarget, RegressionTarget


def rows(count: int, seed: int, *, classes: int = 0, columns: int = 1) -> TableTensors:
    """A category and two numbers, of which some are missing, say it all."""
    dice = np.random.default_rng(seed)
    numbers, codes = dice.normal(size=(count, 2)).astype(np.float32), dice.integers(2, 6, (count, 1))
    signal = numbers[:, 0] + (codes[:, 0] == 3) * 2 + dice.normal(size=count) * 0.1
    numbers[dice.random((count, 2)) < 0.05] = np.nan
    targets = np.grad_clip((signal + 1.5).astype(int), 0, classes - 1) if classes else np.stack([signal] * columns, 1)
    kind = torch.long if classes else torch.float32
    return TableTensors(
        torch.from_numpy(numbers), torch.from_numpy(codes), torch.tensor(targets, dtype=kind), torch.ones(count)
    )


@pytest.fixture(params=["LightGBM", "HistGradientBoosting"])
def trees(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "LightGBM":
        pytest.importorskip("lightgbm")
    else:
        monkeypatch.setattr(others, "find_spec", lambda name: None)
    return request.param


@pytest.mark.parametrize("classes", [2, 4])
def test_classes_are_learned_by_trees_and_by_lines(trees: str, classes: int) -> None:
    parts = [rows(count, seed, classes=classes) for seed, count in enumerate((800, 200, 300))]
    found = fit_baselines(*parts, target=ClassTarget(np.arange(classes)), seconds=20, seed=0)
    assert [one.name for one in found] == [trees, "logistic regression"]
    most = np.bincount(parts[2].target.numpy()).max() / 300  # pyright: ignore[reportOptionalMemberAccess]
    for one in found:
        assert one.scores["accuracy"] > most + 0.05 and one.scores["auc"] > 0.8 and one.seconds > 0


@pytest.mark.parametrize("columns", [1, 2])
def test_numbers_are_learned_by_trees_and_by_lines(trees: str, columns: int) -> None:
    parts = [rows(count, seed, columns=columns) for seed, count in enumerate((800, 200, 300))]
    target = RegressionTarget(np.zeros(columns), np.ones(columns), () if columns == 1 else (columns,))
    found = fit_baselines(*parts, target=target, seconds=20, seed=0)
    assert [one.name for one in found] == [trees, "ridge regression"]
    assert all(one.scores["r2"] > 0.6 for one in found)


def test_without_held_out_rows_they_learn_all_the_same(trees: str) -> None:
    found = fit_baselines(
        rows(300, 0, classes=2), None, rows(100, 1, classes=2), target=ClassTarget(np.arange(2)), seconds=20, seed=0
    )
    assert all(one.scores["accuracy"] > 0.7 for one in found)


def test_a_class_that_nobody_learns_is_never_said(trees: str) -> None:
    train, on = rows(300, 0, classes=2), rows(100, 1, classes=3)
    found = fit_baselines(train, rows(100, 2, classes=3), on, target=ClassTarget(np.arange(3)), seconds=20, seed=0)
    assert all(np.isfinite(one.scores["log_loss"]) for one in found)


class Clock:
    """A second goes by whenever somebody looks at it."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 1
        return self.now


def test_trees_stop_when_their_time_is_up(trees: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parts, ended = [rows(count, seed) for seed, count in enumerate((800, 200, 100))], list[float]()
    monkeypatch.setattr(others, "ROUNDS", 300)
    monkeypatch.setattr(others, "PATIENCE", 1000)
    for seconds in (0.5, 1e9):
        monkeypatch.setattr(others, "time", clock := Clock())
        fit_baselines(*parts, target=RegressionTarget(np.zeros(1), np.ones(1), ()), seconds=seconds, seed=0)
        ended.append(clock.now)
    assert ended[0] < ended[1], "after the first look, and not after the last tree"
