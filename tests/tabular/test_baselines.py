"""Other people's models on the same rows, and what answers are worth."""

import time

import numpy as np
import pytest
import torch

from softlook.tabular import baselines as others
from softlook.tabular.baselines import baselines
from softlook.tabular.metrics import judged
from softlook.tabular.rows import Rows
from softlook.tabular.targets import Amounts, Classes


def rows(count: int, seed: int, *, classes: int = 0, columns: int = 1) -> Rows:
    """A category and two numbers, of which some are missing, say it all."""
    dice = np.random.default_rng(seed)
    numbers, codes = dice.normal(size=(count, 2)).astype(np.float32), dice.integers(2, 6, (count, 1))
    signal = numbers[:, 0] + (codes[:, 0] == 3) * 2 + dice.normal(size=count) * 0.1
    numbers[dice.random((count, 2)) < 0.05] = np.nan
    wanted = np.clip((signal + 1.5).astype(int), 0, classes - 1) if classes else np.stack([signal] * columns, 1)
    kind = torch.long if classes else torch.float32
    return Rows(torch.from_numpy(numbers), torch.from_numpy(codes), torch.tensor(wanted, dtype=kind), torch.ones(count))


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
    found = baselines(*parts, targets=Classes(np.arange(classes)), seconds=20, seed=0)
    assert [one.name for one in found] == [trees, "logistic regression"]
    most = np.bincount(parts[2].wanted.numpy()).max() / 300  # pyright: ignore[reportOptionalMemberAccess]
    for one in found:
        assert one.scores["accuracy"] > most + 0.05 and one.scores["auc"] > 0.8 and one.seconds > 0


@pytest.mark.parametrize("columns", [1, 2])
def test_numbers_are_learned_by_trees_and_by_lines(trees: str, columns: int) -> None:
    parts = [rows(count, seed, columns=columns) for seed, count in enumerate((800, 200, 300))]
    targets = Amounts(np.zeros(columns), np.ones(columns), () if columns == 1 else (columns,))
    found = baselines(*parts, targets=targets, seconds=20, seed=0)
    assert [one.name for one in found] == [trees, "ridge regression"]
    assert all(one.scores["r2"] > 0.6 for one in found)


def test_without_held_out_rows_they_learn_all_the_same(trees: str) -> None:
    found = baselines(
        rows(300, 0, classes=2), None, rows(100, 1, classes=2), targets=Classes(np.arange(2)), seconds=20, seed=0
    )
    assert all(one.scores["accuracy"] > 0.7 for one in found)


def test_a_class_that_nobody_learns_is_never_said(trees: str) -> None:
    train, on = rows(300, 0, classes=2), rows(100, 1, classes=3)
    found = baselines(train, rows(100, 2, classes=3), on, targets=Classes(np.arange(3)), seconds=20, seed=0)
    assert all(np.isfinite(one.scores["log_loss"]) for one in found)


def test_trees_stop_when_their_time_is_up(trees: str) -> None:
    began = time.monotonic()
    parts = [rows(count, seed, classes=4) for seed, count in enumerate((4000, 1000, 100))]
    baselines(*parts, targets=Classes(np.arange(4)), seconds=0.01, seed=0)
    assert time.monotonic() - began < 30


def test_answers_are_judged_as_scikit_learn_judges_them() -> None:
    classes = Classes(np.array(["a", "b", "c"]))
    answers = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.4, 0.3], [0.0, 0.0, 1.0]])
    found = judged(classes, answers, np.array([0, 1, 2, 2]))
    assert found["accuracy"] == 0.75 and found["auc"] == 1.0
    assert found["log_loss"] == pytest.approx(-np.log([0.7, 0.8, 0.3, 1.0]).mean())
    alone = judged(classes, answers[:1], np.array([0]))
    assert "auc" not in alone, "of one class there is no area"


def test_numbers_are_judged_in_their_own_units() -> None:
    amounts = Amounts.of(np.array([0.0, 10.0]))
    found = judged(amounts, np.array([[1.0], [-1.0]]), np.array([[1.0], [1.0]]))
    assert found["rmse"] == pytest.approx(np.sqrt(50)) and found["mae"] == pytest.approx(5)
