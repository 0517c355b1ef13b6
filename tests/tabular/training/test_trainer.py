"""The training loop of table models."""

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
from softlook.tabular.training.runtime import TimeBudget, forked_rng
from softlook.tabular.training.train_step import build_optimizer
from softlook.tabular.training.trainer import TableTrainer, predict_rows

CPU = torch.device("cpu")


def rows(count: int = 40, seed: int = 0) -> TableTensors:
    cells = torch.randn(count, 2, generator=torch.Generator().manual_seed(seed))
    return TableTensors(cells, torch.zeros(count, 0).long(), (cells[:, 0] > 0).long(), torch.ones(count))


def model(ensemble_size: int = 2) -> nn.Module:
    return TableTransformer(
        TableTransformerConfig(n_numeric=2, ensemble_size=ensemble_size, dim=8, depth=2, heads=2, bins=4)
    )


def make_trainer(validation: TableTensors | None, **params: Any) -> TableTrainer:
    hparams = Hyperparameters(**({"batch_size": 16, "lr": 1e-2} | params))
    return TableTrainer(model(), rows(), validation, target=ClassTarget(np.arange(2)), hparams=hparams, seed=0)


def test_embeddings_norms_biases_and_members_have_no_weight_decay() -> None:
    ft_transformer = FTTransformer(FTTransformerConfig(n_numeric=2, cardinalities=(3,), dim=8, depth=1, heads=2))
    for one in (ft_transformer, model()):
        decayed = {id(weights) for weights in build_optimizer(one, Hyperparameters()).param_groups[0]["params"]}
        names = {name for name, weights in one.named_parameters() if id(weights) in decayed}
        assert {"blocks.0.attn.to_query.weight", "blocks.0.attn.to_out.weight"} <= names
        assert not any(part in name for name in names for part in ("embedding", "cls_token", "norm", "bias", "member"))


def test_training_reduces_the_loss() -> None:
    fitted = make_trainer(rows(seed=1), epochs=40)
    history = fitted.train(TimeBudget(), lambda epoch: None)
    assert history[-1]["loss"] < 0.5 * history[0]["loss"]
    assert max(epoch["val_score"] for epoch in history) > 0.8


def test_the_best_weights_are_kept() -> None:
    validation = rows(seed=1)
    fitted = make_trainer(validation, epochs=12, lr=0.05, early_stopping_metric="loss")
    history = fitted.train(TimeBudget(), lambda epoch: None)
    assert validation.targets is not None
    loss = (
        fitted.target.evaluate(predict_rows(fitted.model, validation, fitted.target), validation.targets)[0]
        .mean()
        .item()
    )
    assert loss == pytest.approx(min(epoch["val_loss"] for epoch in history))


def test_patience_counts_evaluations_without_improvement() -> None:
    validation = TableTensors(torch.zeros(4, 2), torch.zeros(4, 0).long(), torch.tensor([0, 1, 0, 1]), torch.ones(4))
    history = make_trainer(validation, patience=3, early_stopping_metric="score").train(
        TimeBudget(), lambda epoch: None
    )
    assert len(history) == 4, "no evaluation is better than the first, as each has a score of one half"


def test_evaluations_are_at_least_eval_every_steps_apart() -> None:
    history = make_trainer(rows(seed=1), epochs=6, eval_every=7).train(TimeBudget(), lambda epoch: None)
    assert [("val_loss" in epoch) for epoch in history] == [False, False, True, False, False, True]


def test_without_validation_rows_the_number_of_steps_is_fixed() -> None:
    history = make_trainer(None, steps_without_validation=10).train(TimeBudget(), lambda epoch: None)
    assert len(history) == 4  # of 3 steps each


def test_a_time_limit_allows_at_least_one_step() -> None:
    history = make_trainer(rows(seed=1)).train(TimeBudget(1e-9, time.monotonic()), lambda epoch: None)
    assert len(history) == 1 and "val_loss" in history[0]


@dataclass
class Clock:
    """A clock that advances only by training steps and by evaluated rows."""

    step: float
    row: float
    now: float = 0.0

    def monotonic(self) -> float:
        return self.now

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for module in (trainer, runtime):
            monkeypatch.setattr(module, "time", self)
        step, predict, states = trainer.TableTrainStep.step, trainer.predict_rows, retrieval.mean_states

        def slow_step(*args: Any) -> Any:
            self.now += self.step
            return step(*args)

        def slow_predict(model: Any, rows: TableTensors, target: Any) -> Any:
            self.now += self.row * len(rows)
            return predict(model, rows, target)

        def slow_states(model: Any, rows: TableTensors) -> Any:
            self.now += 2 * self.row * len(rows)
            return states(model, rows)

        monkeypatch.setattr(trainer.TableTrainStep, "step", slow_step)
        monkeypatch.setattr(trainer, "predict_rows", slow_predict)
        monkeypatch.setattr(retrieval, "mean_states", slow_states)


VALIDATION_ROWS = 160
DURATIONS = {  # seconds of a step, and of an evaluation of all validation rows, within a limit of 100
    "fast evaluations": (1.5, 3.0),
    "slow evaluations": (1.0, 30.0),
    "evaluations longer than the limit": (20.0, 260.0),
    "slow steps": (20.0, 3.0),
}


@pytest.mark.parametrize("retrieval_rows", [None, 30])
@pytest.mark.parametrize("eval_every", [0, 50])
@pytest.mark.parametrize("name", DURATIONS)
def test_a_time_limit_is_exceeded_by_at_most_a_step_however_long_an_evaluation_takes(
    name: str, eval_every: int, retrieval_rows: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrieval, "MIN_VALIDATION_ROWS", 1)
    monkeypatch.setattr(retrieval, "DISTANCE_ROWS", 4)
    monkeypatch.setattr("softlook.tabular.preprocessing.rows.CPU_ROWS", 32)
    step, evaluation = DURATIONS[name]
    fitted = make_trainer(rows(VALIDATION_ROWS, seed=1), patience=10**6, eval_every=eval_every)
    fitted.hparams = replace(fitted.hparams, retrieval_rows=retrieval_rows)
    clock = Clock(step, evaluation / VALIDATION_ROWS)
    clock.install(monkeypatch)
    history = fitted.train(TimeBudget(100.0, 0.0), lambda epoch: None)
    assert 60 < clock.now < 100 + 1.01 * step
    assert "val_loss" in history[-1], "the last weights must be evaluated"
    steps = fitted.steps
    fitted.train(TimeBudget(100.0, 0.0), lambda epoch: None)
    assert fitted.steps == steps, "a finished training must not continue under the same limit"


def test_if_time_is_short_the_same_sample_of_validation_rows_is_always_evaluated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("softlook.tabular.preprocessing.rows.CPU_ROWS", 32)
    fitted = make_trainer(rows(VALIDATION_ROWS, seed=1), patience=10**6)
    clock = Clock(1.0, 2.0)  # five minutes for an evaluation of all rows
    clock.install(monkeypatch)
    evaluated: list[TableTensors] = []
    predict = trainer.predict_rows

    def record(model: Any, rows: TableTensors, target: Any) -> Any:
        evaluated.append(rows)
        return predict(model, rows, target)

    monkeypatch.setattr(trainer, "predict_rows", record)
    fitted.train(TimeBudget(200.0, 0.0), lambda epoch: None)
    first, *others = evaluated[2:]  # after two measurements
    assert fitted.n_validation_rows == len(first) == 50, "evaluation takes half of the time"
    assert all(torch.equal(first.numbers, other.numbers) for other in others)
    assert not fitted.uses_retrieval


def test_a_time_limit_that_is_not_reached_changes_nothing() -> None:
    results = []
    for limit in (None, 1e9):
        with forked_rng(0, CPU):
            fitted = make_trainer(rows(seed=1), epochs=5, hidden_dropout=0.3)
            fitted.train(TimeBudget(limit, time.monotonic()), lambda epoch: None)
        results.append(copy.deepcopy(fitted.model.state_dict()))
    assert all(torch.equal(results[0][name], results[1][name]) for name in results[0])


def test_a_row_of_weight_2_counts_as_two_rows() -> None:
    some = rows(8)
    repeated = some.take(torch.arange(8).repeat_interleave(torch.tensor([1, 2] * 4)))
    weighted = TableTensors(some.numbers, some.categories, some.targets, torch.tensor([1.0, 2.0] * 4))
    results = []
    for train in (repeated, weighted):
        torch.manual_seed(0)
        network = model().eval()
        target, hparams = ClassTarget(np.arange(2)), Hyperparameters(batch_size=99)
        fitted = TableTrainer(network, train, None, target=target, hparams=hparams, seed=0)
        fitted.train_step.step(train.normalize_weights(), 1e-4, 99)
        gradients = [weights.grad.flatten() for weights in network.parameters() if weights.grad is not None]
        results.append(torch.cat(gradients))
    torch.testing.assert_close(results[0], results[1], atol=1e-6, rtol=1e-4)


def test_a_loss_that_is_not_finite_raises_an_error() -> None:
    fitted = make_trainer(None, lr=1e30)
    with pytest.raises(TrainingError, match="the loss became (nan|inf) in epoch .*Try a smaller lr"):
        fitted.train(TimeBudget(), lambda epoch: None)


def test_a_forked_rng_is_reproducible_and_leaves_the_global_random_state_unchanged() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    with forked_rng(1, CPU):
        one = torch.rand(3)
    with forked_rng(1, CPU):
        assert (torch.rand(3) == one).all()
    torch.manual_seed(5)
    with forked_rng(2, CPU):
        torch.rand(3)
    assert (torch.rand(3) == expected).all()


@pytest.mark.parametrize("ensemble_size", [1, 5])
def test_a_prediction_does_not_depend_on_the_number_of_rows(ensemble_size: int) -> None:
    network, some = model(ensemble_size), rows(50)
    target = RegressionTarget(np.zeros(1), np.ones(1), ())
    whole = predict_rows(network, some, target)
    row_by_row = torch.cat([predict_rows(network, some.take(slice(row, row + 1)), target) for row in range(50)])
    torch.testing.assert_close(row_by_row, whole, atol=1e-6, rtol=1e-6)
