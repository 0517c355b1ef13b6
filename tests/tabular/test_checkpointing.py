"""Training resumed from a checkpoint gives bitwise equal results."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from softlook.base.errors import TrainingError, WeightsError
from softlook.tabular import (
    FTTransformerRegressor,
    TableTransformerClassifier,
    TabTransformerClassifier,
    load,
)
from softlook.tabular.checkpointing import COUNTERS, TableTrainState
from softlook.tabular.training.runtime import Epoch, TimeBudget
from softlook.tabular.training.trainer import TableTrainer
from softlook.train.checkpoint.checkpoint_manager import CheckpointManager
from softlook.train.checkpoint.train_state import Progress

SMALL: dict[str, Any] = {"dim": 8, "depth": 1, "heads": 2, "batch_size": 32, "epochs": 5, "device": "cpu"}
ESTIMATORS: dict[str, tuple[Any, dict[str, Any]]] = {
    "table": (TableTransformerClassifier, {"n_members": 2, "ensemble": "single"}),
    "ft": (FTTransformerRegressor, {}),
    "tab": (TabTransformerClassifier, {"preset": "improved"}),
}


class Interrupted(Exception):  # noqa: N818  (not an error)
    """Training is left after a checkpoint."""


class CheckpointedTraining:
    """Resumes from the newest checkpoint; at `interrupt_at` steps, saves another one and raises Interrupted."""

    def __init__(
        self, folder: Path, estimator: Any, interrupt_at: int | None, settings: dict[str, Any] | None = None
    ) -> None:
        self.checkpoints = CheckpointManager(folder, settings=settings)
        self.estimator, self.interrupt_at = estimator, interrupt_at

    def __call__(self, trainer: TableTrainer, budget: TimeBudget) -> list[Epoch]:
        state = TableTrainState.of(trainer, self.estimator)
        self.checkpoints.restore(state, print)

        def maybe_interrupt() -> None:
            if trainer.steps == self.interrupt_at:
                self.checkpoints.save(state, Progress(step=trainer.steps))
                raise Interrupted

        trainer.after_step = maybe_interrupt
        return trainer.train(budget, lambda epoch: maybe_interrupt())


def rows() -> tuple[np.ndarray, np.ndarray]:
    numbers = np.random.default_rng(0).normal(size=(400, 3))
    return numbers, (numbers[:, 0] + numbers[:, 1] ** 2 > 0.5).astype(float)


def train_and_interrupt(folder: Path, estimator_class: Any, params: dict[str, Any], step: int) -> None:
    estimator = estimator_class(**SMALL, **params, random_state=0)
    with pytest.raises(Interrupted):
        estimator._fit(*rows(), None, None, CheckpointedTraining(folder, estimator, step))
    assert not hasattr(estimator, "model_"), "an interrupted estimator must not count as fitted"


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("step", [1, 10, 17, 49])  # an epoch has ten steps
def test_resumed_training_is_bitwise_equal(name: str, step: int, tmp_path: Path) -> None:
    estimator_class, params = ESTIMATORS[name]
    uninterrupted = estimator_class(**SMALL, **params, random_state=0).fit(*rows())
    train_and_interrupt(tmp_path, estimator_class, params, step)
    torch.manual_seed(7)  # the global random state must not matter
    resumed = estimator_class(**SMALL, **params, random_state=0)
    resumed._fit(*rows(), None, None, CheckpointedTraining(tmp_path, resumed, None))
    expected, actual = uninterrupted.model_.state_dict(), resumed.model_.state_dict()
    assert all(torch.equal(expected[name], actual[name]) for name in expected)
    assert [epoch["loss"] for epoch in uninterrupted.history_] == [epoch["loss"] for epoch in resumed.history_]
    assert (uninterrupted.predict(rows()[0]) == resumed.predict(rows()[0])).all()


def test_under_a_time_limit_the_sample_of_validation_rows_stays_the_same(tmp_path: Path) -> None:
    def train(interrupt_at: int | None) -> TableTrainer:
        estimator = TableTransformerClassifier(**SMALL, n_members=2, time_limit=1e6, random_state=0)
        checkpointed, trainers = CheckpointedTraining(tmp_path, estimator, interrupt_at), list[TableTrainer]()

        def train_loop(trainer: TableTrainer, budget: TimeBudget) -> list[Epoch]:
            trainers.append(trainer)
            if interrupt_at is not None:
                trainer.n_validation_rows, trainer.uses_retrieval = 30, False  # as if time were short
            return checkpointed(trainer, budget)

        with nullcontext() if interrupt_at is None else pytest.raises(Interrupted):
            estimator._fit(*rows(), None, None, train_loop)
        return trainers[0]

    train(17)
    resumed = train(None)
    assert resumed.validation is not None and len(resumed.validation) == 80
    assert resumed.n_validation_rows == 30 and not resumed.uses_retrieval


def test_every_checkpoint_can_be_loaded_as_an_estimator(tmp_path: Path) -> None:
    train_and_interrupt(tmp_path, TableTransformerClassifier, {"n_members": 2}, 17)
    estimator = load(tmp_path)
    assert estimator.predict_proba(rows()[0]).shape == (400, 2) and len(estimator.history_) == 1


def test_a_checkpoint_of_another_version_cannot_be_resumed_but_predicts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        counters = tuple(name for name in COUNTERS if name != "reached_limit")
        older.setattr("softlook.tabular.checkpointing.COUNTERS", counters)
        train_and_interrupt(tmp_path, TableTransformerClassifier, {"n_members": 2}, 17)
    estimator = TableTransformerClassifier(**SMALL, n_members=2, random_state=0)
    message = r"table_trainer.json lacks reached_limit: another version .* start a new run"
    with pytest.raises(TrainingError, match=message):
        estimator._fit(*rows(), None, None, CheckpointedTraining(tmp_path, estimator, None))
    assert load(tmp_path).predict(rows()[0]).shape == (400,)


def test_a_checkpoint_of_another_model_or_other_settings_is_rejected(tmp_path: Path) -> None:
    train_and_interrupt(tmp_path, TableTransformerClassifier, {"n_members": 2}, 17)
    wider = TableTransformerClassifier(**{**SMALL, "dim": 16}, n_members=2, random_state=0)
    with pytest.raises(WeightsError, match="does not match|must have shape"):
        wider._fit(*rows(), None, None, CheckpointedTraining(tmp_path, wider, None))
    other = TableTransformerClassifier(**SMALL, n_members=2, random_state=0)
    with pytest.raises(TrainingError, match="lr: was None, now 1"):
        other._fit(*rows(), None, None, CheckpointedTraining(tmp_path, other, None, {"lr": 1}))
