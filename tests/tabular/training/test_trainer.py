"""The loop that a table's model learns in."""

import copy
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from softlook.base.errors import TrainingError
from softlook.models import FTTransformer, FTTransformerConfig, TableTransformer, TableTransformerConfig
from softlook.tabular.preprocessing.rows import TableTensors
from softlook.tabular.preprocessing.target import ClassTarget, RegressionTarget
from softlook.tabular.presets import Hyperparameters
from softlook.tabular.training import retrieval, runtime, trainer
from softlook.tabular.training.loop import TimeBudget
from softlook.tabular.training.runtime import forked_rng
from softlook.tabular.training.train_step import build_optimizer
from softlook.tabular.training.trainer import TableTrainer, predict_rows

CPU = torch.device("cpu")


def rows(count: int = 40, seed: int = 0) -> TableTensors:
    cells = torch.randn(count, 2, generator=torch.Generator().manual_seed(seed))
    return TableTensors(cells, torch.zeros(count, 0).long(), (cells[:, 0] > 0).long(), torch.ones(count))


def model(n_members: int = 2) -> nn.Module:
    return TableTransformer(TableTransformerConfig(n_numeric=2, n_members=n_members, dim=8, depth=2, heads=2, bins=4))


def learner(held: TableTensors | None, **told: float) -> TableTrainer:
    preset = Hyperparameters(**({"batch_size": 16, "lr": 1e-2} | told))  # pyright: ignore[reportArgumentType]
    return TableTrainer(model(), rows(), held, target=ClassTarget(np.arange(2)), preset=preset, seed=0)


def test_tokens_norms_biases_and_members_are_not_pulled_towards_nought() -> None:
    made = FTTransformer(FTTransformerConfig(n_numeric=2, cardinalities=(3,), dim=8, depth=1, heads=2))
    for one in (made, model()):
        pulled = {id(weights) for weights in build_optimizer(one, Hyperparameters()).param_groups[0]["params"]}
        names = {name for name, weights in one.named_parameters() if id(weights) in pulled}
        assert {"blocks.0.attn.to_query.weight", "blocks.0.attn.to_out.weight"} <= names
        assert not any(part in name for name in names for part in ("numbers", "categories", "norm", "bias", "members"))


def test_it_learns() -> None:
    learned = learner(rows(seed=1), epochs=40)
    history = learned.train(TimeBudget(), lambda epoch: None)
    assert history[-1]["loss"] < 0.5 * history[0]["loss"]
    assert max(epoch["val_score"] for epoch in history) > 0.8


def test_the_best_weights_are_kept_and_not_the_last() -> None:
    held = rows(seed=1)
    learned = learner(held, epochs=12, lr=0.05, early_stopping_metric="loss")  # pyright: ignore[reportArgumentType]
    history = learned.train(TimeBudget(), lambda epoch: None)
    assert held.target is not None
    loss = learned.target.evaluate(predict_rows(learned.model, held, learned.target), held.target)[0].mean().item()
    assert loss == pytest.approx(min(epoch["val_loss"] for epoch in history))


def test_patience_counts_looks_without_a_better_one() -> None:
    held = TableTensors(torch.zeros(4, 2), torch.zeros(4, 0).long(), torch.tensor([0, 1, 0, 1]), torch.ones(4))
    history = learner(held, patience=3, early_stopping_metric="score").train(TimeBudget(), lambda epoch: None)  # pyright: ignore[reportArgumentType]
    assert len(history) == 4, "the first look is the best, as every later one scores half of the rows as well"


def test_a_look_waits_for_its_steps() -> None:
    history = learner(rows(seed=1), epochs=6, eval_every=7).train(TimeBudget(), lambda epoch: None)
    assert [("val_loss" in epoch) for epoch in history] == [False, False, True, False, False, True]


def test_without_held_out_rows_it_takes_so_many_steps() -> None:
    assert (
        len(learner(None, steps_without_validation=10).train(TimeBudget(), lambda epoch: None)) == 4
    )  # of 3 steps each


def test_a_time_limit_ends_it_after_a_step_at_least() -> None:
    history = learner(rows(seed=1)).train(TimeBudget(1e-9, time.monotonic()), lambda epoch: None)
    assert len(history) == 1 and "val_loss" in history[0]


@dataclass
class Clock:
    """A time that goes by as steps are made and rows are looked at, and not otherwise."""

    step: float
    row: float
    now: float = 0.0

    def monotonic(self) -> float:
        return self.now

    def slow(self, patch: pytest.MonkeyPatch) -> None:
        for module in (fitting, runtime):
            patch.setattr(module, "time", self)
        step, look, states = trainer.TableTrainStep.step, trainer.predict_rows, retrieval.mean_states

        def slow_step(*given: Any) -> Any:
            self.now += self.step
            return step(*given)

        def slow_look(model: Any, rows: TableTensors, target: Any) -> Any:
            self.now += self.row * len(rows)
            return look(model, rows, target)

        def slow_states(model: Any, rows: TableTensors) -> Any:
            self.now += 2 * self.row * len(rows)
            return states(model, rows)

        patch.setattr(trainer.TableTrainStep, "step", slow_step)
        patch.setattr(trainer, "answers", slow_look)
        patch.setattr(retrieval, "states_of", slow_states)


HELD = 160
LOOKS = {  # seconds of a step, and of a look at all of the held-out rows, where there are 100
    "quick looks": (1.5, 3.0),
    "slow looks": (1.0, 30.0),
    "looks that take longer than there is time": (20.0, 260.0),
    "slow steps": (20.0, 3.0),
}


@pytest.mark.parametrize("memory", [None, 30])
@pytest.mark.parametrize("eval_every", [0, 50])
@pytest.mark.parametrize("name", LOOKS)
def test_a_time_limit_is_kept_up_to_a_step_however_long_a_look_takes(
    name: str, eval_every: int, memory: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrieval, "FEW_JUDGES", 1)
    monkeypatch.setattr(retrieval, "TOGETHER", 4)
    monkeypatch.setattr("softlook.tabular.preprocessing.rows.TOGETHER", 32)
    step, look = LOOKS[name]
    learned = learner(rows(HELD, seed=1), patience=10**6, eval_every=eval_every)
    learned.hparams = replace(learned.hparams, memory=memory)
    clock = Clock(step, look / HELD)
    clock.slow(monkeypatch)
    history = learned.train(TimeBudget(100.0, 0.0), lambda epoch: None)
    assert 60 < clock.now < 100 + 1.01 * step
    assert "val_loss" in history[-1], "the last weights were looked at"
    ended = learned.steps
    learned.train(TimeBudget(100.0, 0.0), lambda epoch: None)
    assert learned.steps == ended, "what is over stays over"


def test_where_time_is_short_fewer_rows_judge_and_always_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("softlook.tabular.preprocessing.rows.TOGETHER", 32)
    learned = learner(rows(HELD, seed=1), patience=10**6)
    clock = Clock(1.0, 2.0)  # five minutes for a look at all of them
    clock.slow(monkeypatch)
    asked: list[TableTensors] = []
    slow = trainer.predict_rows
    monkeypatch.setattr(fitting, "answers", lambda model, some, target: asked.append(some) or slow(model, some, target))
    learned.train(TimeBudget(200.0, 0.0), lambda epoch: None)
    first, *others = asked[2:]  # two tries come before
    assert learned.n_validation_rows == len(first) == 50, "half of the time"
    assert all(torch.equal(first.numbers, other.numbers) for other in others)
    assert not learned.uses_retrieval


def test_a_limit_that_is_never_reached_changes_no_bit() -> None:
    found = []
    for limit in (None, 1e9):
        with forked_rng(0, CPU):
            learned = learner(rows(seed=1), epochs=5, hidden_dropout=0.3)
            learned.train(TimeBudget(limit, time.monotonic()), lambda epoch: None)
        found.append(copy.deepcopy(learned.model.state_dict()))
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def test_weights_count_as_often_as_they_say() -> None:
    some = rows(8)
    twice = some.take(torch.arange(8).repeat_interleave(torch.tensor([1, 2] * 4)))
    heavy = TableTensors(some.numbers, some.categories, some.target, torch.tensor([1.0, 2.0] * 4))
    found = []
    for train in (twice, heavy):
        torch.manual_seed(0)
        made = model().eval()
        learned = TableTrainer(
            made, train, None, target=ClassTarget(np.arange(2)), preset=Hyperparameters(batch_size=99), seed=0
        )
        learned.train_step.step(train.normalize_weights(), 1e-4, 99)
        found.append(torch.cat([weights.grad.flatten() for weights in made.parameters() if weights.grad is not None]))
    torch.testing.assert_close(found[0], found[1], atol=1e-6, rtol=1e-4)


def test_a_loss_that_is_no_number_is_said() -> None:
    learned = learner(None, lr=1e30)
    with pytest.raises(TrainingError, match="the loss became (nan|inf) in epoch .*Try a smaller lr"):
        learned.train(TimeBudget(), lambda epoch: None)


def test_dice_leave_those_of_others_alone() -> None:
    torch.manual_seed(5)
    targets = torch.rand(3)
    torch.manual_seed(5)
    with forked_rng(1, CPU):
        one = torch.rand(3)
    with forked_rng(1, CPU):
        assert (torch.rand(3) == one).all()
    torch.manual_seed(5)
    with forked_rng(2, CPU):
        torch.rand(3)
    assert (torch.rand(3) == targets).all()


@pytest.mark.parametrize("n_members", [1, 5])
def test_an_answer_does_not_depend_on_how_many_rows_are_asked_for(n_members: int) -> None:
    made, some = model(n_members), rows(50)
    is_regression = RegressionTarget(np.zeros(1), np.ones(1), ())
    whole = predict_rows(made, some, is_regression)
    alone = torch.cat([predict_rows(made, some.take(slice(at, at + 1)), is_regression) for at in range(50)])
    torch.testing.assert_close(alone, whole, atol=1e-6, rtol=1e-6)
