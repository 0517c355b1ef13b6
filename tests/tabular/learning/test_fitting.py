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
from softlook.tabular.defaults import Recipe
from softlook.tabular.encoding.rows import Rows
from softlook.tabular.encoding.targets import Amounts, Classes
from softlook.tabular.learning import fitting, row_memory, timing
from softlook.tabular.learning.fitting import Learner, Limits, answers, dice
from softlook.tabular.learning.stepping import make_optimizer

CPU = torch.device("cpu")


def rows(count: int = 40, seed: int = 0) -> Rows:
    cells = torch.randn(count, 2, generator=torch.Generator().manual_seed(seed))
    return Rows(cells, torch.zeros(count, 0).long(), (cells[:, 0] > 0).long(), torch.ones(count))


def model(members: int = 2) -> nn.Module:
    return TableTransformer(TableTransformerConfig(numbers=2, members=members, dim=8, depth=2, heads=2, bins=4))


def learner(held: Rows | None, **told: float) -> Learner:
    recipe = Recipe(**({"batch_size": 16, "lr": 1e-2} | told))  # pyright: ignore[reportArgumentType]
    return Learner(model(), rows(), held, targets=Classes(np.arange(2)), recipe=recipe, seed=0)


def test_tokens_norms_biases_and_members_are_not_pulled_towards_nought() -> None:
    made = FTTransformer(FTTransformerConfig(numbers=2, categories=(3,), dim=8, depth=1, heads=2))
    for one in (made, model()):
        pulled = {id(weights) for weights in make_optimizer(one, Recipe()).param_groups[0]["params"]}
        names = {name for name, weights in one.named_parameters() if id(weights) in pulled}
        assert {"blocks.0.attend.to_query.weight", "blocks.0.attend.to_out.weight"} <= names
        assert not any(part in name for name in names for part in ("numbers", "categories", "norm", "bias", "members"))


def test_it_learns() -> None:
    learned = learner(rows(seed=1), epochs=40)
    history = learned.learn(Limits(), lambda epoch: None)
    assert history[-1]["loss"] < 0.5 * history[0]["loss"]
    assert max(epoch["held_out_score"] for epoch in history) > 0.8


def test_the_best_weights_are_kept_and_not_the_last() -> None:
    held = rows(seed=1)
    learned = learner(held, epochs=12, lr=0.05, watch="loss")  # pyright: ignore[reportArgumentType]
    history = learned.learn(Limits(), lambda epoch: None)
    assert held.wanted is not None
    loss = learned.targets.judged(answers(learned.model, held, learned.targets), held.wanted)[0].mean().item()
    assert loss == pytest.approx(min(epoch["held_out_loss"] for epoch in history))


def test_patience_counts_looks_without_a_better_one() -> None:
    held = Rows(torch.zeros(4, 2), torch.zeros(4, 0).long(), torch.tensor([0, 1, 0, 1]), torch.ones(4))
    history = learner(held, patience=3, watch="score").learn(Limits(), lambda epoch: None)  # pyright: ignore[reportArgumentType]
    assert len(history) == 4, "the first look is the best, as every later one scores half of the rows as well"


def test_a_look_waits_for_its_steps() -> None:
    history = learner(rows(seed=1), epochs=6, look_every=7).learn(Limits(), lambda epoch: None)
    assert [("held_out_loss" in epoch) for epoch in history] == [False, False, True, False, False, True]


def test_without_held_out_rows_it_takes_so_many_steps() -> None:
    assert len(learner(None, blind=10).learn(Limits(), lambda epoch: None)) == 4  # of 3 steps each


def test_a_time_limit_ends_it_after_a_step_at_least() -> None:
    history = learner(rows(seed=1)).learn(Limits(1e-9, time.monotonic()), lambda epoch: None)
    assert len(history) == 1 and "held_out_loss" in history[0]


@dataclass
class Clock:
    """A time that goes by as steps are made and rows are looked at, and not otherwise."""

    step: float
    row: float
    now: float = 0.0

    def monotonic(self) -> float:
        return self.now

    def slow(self, patch: pytest.MonkeyPatch) -> None:
        for module in (fitting, timing):
            patch.setattr(module, "time", self)
        step, look, states = fitting.Stepping.step, fitting.answers, row_memory.states_of

        def slow_step(*given: Any) -> Any:
            self.now += self.step
            return step(*given)

        def slow_look(model: Any, rows: Rows, targets: Any) -> Any:
            self.now += self.row * len(rows)
            return look(model, rows, targets)

        def slow_states(model: Any, rows: Rows) -> Any:
            self.now += 2 * self.row * len(rows)
            return states(model, rows)

        patch.setattr(fitting.Stepping, "step", slow_step)
        patch.setattr(fitting, "answers", slow_look)
        patch.setattr(row_memory, "states_of", slow_states)


HELD = 160
LOOKS = {  # seconds of a step, and of a look at all of the held-out rows, where there are 100
    "quick looks": (1.5, 3.0),
    "slow looks": (1.0, 30.0),
    "looks that take longer than there is time": (20.0, 260.0),
    "slow steps": (20.0, 3.0),
}


@pytest.mark.parametrize("memory", [None, 30])
@pytest.mark.parametrize("look_every", [0, 50])
@pytest.mark.parametrize("name", LOOKS)
def test_a_time_limit_is_kept_up_to_a_step_however_long_a_look_takes(
    name: str, look_every: int, memory: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_memory, "FEW_JUDGES", 1)
    monkeypatch.setattr(row_memory, "TOGETHER", 4)
    monkeypatch.setattr("softlook.tabular.encoding.rows.TOGETHER", 32)
    step, look = LOOKS[name]
    learned = learner(rows(HELD, seed=1), patience=10**6, look_every=look_every)
    learned.recipe = replace(learned.recipe, memory=memory)
    clock = Clock(step, look / HELD)
    clock.slow(monkeypatch)
    history = learned.learn(Limits(100.0, 0.0), lambda epoch: None)
    assert 60 < clock.now < 100 + 1.01 * step
    assert "held_out_loss" in history[-1], "the last weights were looked at"
    ended = learned.steps
    learned.learn(Limits(100.0, 0.0), lambda epoch: None)
    assert learned.steps == ended, "what is over stays over"


def test_where_time_is_short_fewer_rows_judge_and_always_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("softlook.tabular.encoding.rows.TOGETHER", 32)
    learned = learner(rows(HELD, seed=1), patience=10**6)
    clock = Clock(1.0, 2.0)  # five minutes for a look at all of them
    clock.slow(monkeypatch)
    asked: list[Rows] = []
    slow = fitting.answers
    monkeypatch.setattr(
        fitting, "answers", lambda model, some, targets: asked.append(some) or slow(model, some, targets)
    )
    learned.learn(Limits(200.0, 0.0), lambda epoch: None)
    first, *others = asked[2:]  # two tries come before
    assert learned.judges == len(first) == 50, "half of the time"
    assert all(torch.equal(first.numbers, other.numbers) for other in others)
    assert not learned.remembers


def test_a_limit_that_is_never_reached_changes_no_bit() -> None:
    found = []
    for limit in (None, 1e9):
        with dice(0, CPU):
            learned = learner(rows(seed=1), epochs=5, hidden_dropout=0.3)
            learned.learn(Limits(limit, time.monotonic()), lambda epoch: None)
        found.append(copy.deepcopy(learned.model.state_dict()))
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def test_weights_count_as_often_as_they_say() -> None:
    some = rows(8)
    twice = some.take(torch.arange(8).repeat_interleave(torch.tensor([1, 2] * 4)))
    heavy = Rows(some.numbers, some.categories, some.wanted, torch.tensor([1.0, 2.0] * 4))
    found = []
    for train in (twice, heavy):
        torch.manual_seed(0)
        made = model().eval()
        learned = Learner(made, train, None, targets=Classes(np.arange(2)), recipe=Recipe(batch_size=99), seed=0)
        learned.stepping.step(train.evened(), 1e-4, 99)
        found.append(torch.cat([weights.grad.flatten() for weights in made.parameters() if weights.grad is not None]))
    torch.testing.assert_close(found[0], found[1], atol=1e-6, rtol=1e-4)


def test_a_loss_that_is_no_number_is_said() -> None:
    learned = learner(None, lr=1e30)
    with pytest.raises(TrainingError, match="the loss became (nan|inf) in epoch .*Try a smaller lr"):
        learned.learn(Limits(), lambda epoch: None)


def test_dice_leave_those_of_others_alone() -> None:
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    with dice(1, CPU):
        one = torch.rand(3)
    with dice(1, CPU):
        assert (torch.rand(3) == one).all()
    torch.manual_seed(5)
    with dice(2, CPU):
        torch.rand(3)
    assert (torch.rand(3) == wanted).all()


@pytest.mark.parametrize("members", [1, 5])
def test_an_answer_does_not_depend_on_how_many_rows_are_asked_for(members: int) -> None:
    made, some = model(members), rows(50)
    amounts = Amounts(np.zeros(1), np.ones(1), ())
    whole = answers(made, some, amounts)
    alone = torch.cat([answers(made, some.take(slice(at, at + 1)), amounts) for at in range(50)])
    torch.testing.assert_close(alone, whole, atol=1e-6, rtol=1e-6)
