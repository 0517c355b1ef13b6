"""A learner that is put back learns on as if nothing had happened."""

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
from softlook.tabular.training.loop import Epoch, TimeBudget
from softlook.tabular.training.trainer import TableTrainer
from softlook.train.checkpoint.checkpoint_manager import CheckpointManager
from softlook.train.checkpoint.train_state import Progress

SMALL: dict[str, Any] = {"dim": 8, "depth": 1, "heads": 2, "batch_size": 32, "epochs": 5, "device": "cpu"}
COLUMN_TYPES = {
    "ours": (TableTransformerClassifier, {"n_members": 2}),
    "paper": (FTTransformerRegressor, {}),
    "tab": (TabTransformerClassifier, {}),
}


class Left(Exception):  # noqa: N818  (it is no fault)
    """Enough for now."""


class CheckpointedTraining:
    """Goes on from what is kept, keeps it once more at a step, and leaves."""

    def __init__(self, folder: Path, estimator: Any, leave: int | None, settings: dict[str, Any] | None = None) -> None:
        self.snapshots, self.estimator, self.write_extra = (
            CheckpointManager(folder, settings=settings),
            estimator,
            leave,
        )

    def __call__(self, learner: TableTrainer, limits: TimeBudget) -> list[Epoch]:
        state = TableTrainState.of(learner, self.estimator)
        self.snapshots.restore(state, print)

        def evaluate() -> None:
            if learner.steps == self.write_extra:
                self.snapshots.save(state, Progress(step=learner.steps))
                raise Left

        learner.after_step = look
        return learner.train(limits, lambda epoch: look())


def rows() -> tuple[np.ndarray, np.ndarray]:
    numbers = np.random.default_rng(0).normal(size=(400, 3))
    return numbers, (numbers[:, 0] + numbers[:, 1] ** 2 > 0.5).astype(float)


def left(folder: Path, kind: Any, more: dict[str, Any], step: int) -> None:
    made = kind(**SMALL, **more, random_state=0)
    with pytest.raises(Left):
        made._fit(*rows(), None, None, CheckpointedTraining(folder, made, step))
    assert not hasattr(made, "model_"), "who was left on the way is not fitted"


@pytest.mark.parametrize("name", COLUMN_TYPES)
@pytest.mark.parametrize("step", [1, 10, 17, 49])  # an epoch has ten steps
def test_what_is_put_back_learns_on_to_the_same_bits(name: str, step: int, tmp_path: Path) -> None:
    kind, more = COLUMN_TYPES[name]
    whole = kind(**SMALL, **more, random_state=0).fit(*rows())
    left(tmp_path, kind, more, step)
    torch.manual_seed(7)  # whatever dice there were
    parts = kind(**SMALL, **more, random_state=0)
    parts._fit(*rows(), None, None, CheckpointedTraining(tmp_path, parts, None))
    one, other = whole.model_.state_dict(), parts.model_.state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert [epoch["loss"] for epoch in whole.history_] == [epoch["loss"] for epoch in parts.history_]
    assert (whole.predict(rows()[0]) == parts.predict(rows()[0])).all()


def test_under_a_limit_the_rows_that_judged_go_on_judging(tmp_path: Path) -> None:
    def columns(folder: Path, leave: int | None) -> TableTrainer:
        made, met = (
            TableTransformerClassifier(**SMALL, n_members=2, time_limit=1e6, random_state=0),
            list[TableTrainer](),
        )
        keeping = CheckpointedTraining(folder, made, leave)

        def record_attention(learner: TableTrainer, limits: TimeBudget) -> list[Epoch]:
            met.append(learner)
            if leave is not None:
                learner.n_validation_rows, learner.uses_retrieval = 30, False  # as where time is short
            return keeping(learner, limits)

        if leave is None:
            made._fit(*rows(), None, None, record_attention)
        else:
            with pytest.raises(Left):
                made._fit(*rows(), None, None, record_attention)
        return met[0]

    learned(tmp_path, 17)
    again = learned(tmp_path, None)
    assert again.validation is not None and len(again.validation) == 80
    assert again.n_validation_rows == 30 and not again.uses_retrieval


def test_every_checkpoint_is_an_estimator(tmp_path: Path) -> None:
    left(tmp_path, TableTransformerClassifier, {"n_members": 2}, 17)
    made = load(tmp_path)
    assert made.predict_proba(rows()[0]).shape == (400, 2) and len(made.history_) == 1


def test_one_of_another_version_is_refused_and_still_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as before:
        before.setattr("softlook.tabular.checkpointing.COUNTED", tuple(name for name in COUNTERS if name != "enough"))
        left(tmp_path, TableTransformerClassifier, {"n_members": 2}, 17)
    made = TableTransformerClassifier(**SMALL, n_members=2, random_state=0)
    with pytest.raises(TrainingError, match=r"learning.json does not say enough: another version .* begin anew"):
        made._fit(*rows(), None, None, CheckpointedTraining(tmp_path, made, None))
    assert load(tmp_path).predict(rows()[0]).shape == (400,)


def test_one_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    left(tmp_path, TableTransformerClassifier, {"n_members": 2}, 17)
    wider = TableTransformerClassifier(**{**SMALL, "dim": 16}, n_members=2, random_state=0)
    with pytest.raises(WeightsError, match="does not fit|should be"):
        wider._fit(*rows(), None, None, CheckpointedTraining(tmp_path, wider, None))
    other = TableTransformerClassifier(**SMALL, n_members=2, random_state=0)
    with pytest.raises(TrainingError, match="lr: None then, 1 now"):
        other._fit(*rows(), None, None, CheckpointedTraining(tmp_path, other, None, {"lr": 1}))
