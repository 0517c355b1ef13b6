"""A step of learning, plain and captured."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from softlook.models import FTTransformer, FTTransformerConfig, TableTransformer, TableTransformerConfig
from softlook.tabular.preprocessing.rows import TableTensors
from softlook.tabular.preprocessing.target import RegressionTarget
from softlook.tabular.presets import PRESETS, Hyperparameters
from softlook.tabular.training import autosize, train_step
from softlook.tabular.training.autosize import TrainingContext, resolve_hyperparameters, scheduled_epochs
from softlook.tabular.training.train_step import TableTrainStep
from softlook.tabular.training.trainer import TableTrainer, TimeBudget

AMOUNTS = RegressionTarget(np.zeros(1), np.ones(1), ())
NO_LIMITS = TimeBudget()
OURS = PRESETS["table"]["default"]


def model(dropout: float = 0.0) -> TableTransformer:
    torch.manual_seed(0)
    sizes = TableTransformerConfig(
        n_numeric=3,
        cardinalities=(4,),
        n_members=2,
        dim=16,
        depth=2,
        heads=2,
        bins=8,
        attention_dropout=dropout,
        hidden_dropout=dropout,
    )
    return TableTransformer(sizes)


def papers() -> FTTransformer:
    torch.manual_seed(0)
    sizes = {"dim": 16, "heads": 2, "attention_dropout": 0.0, "hidden_dropout": 0.0}
    return FTTransformer(FTTransformerConfig(n_numeric=3, cardinalities=(4,), depth=2, **sizes))


def rows(count: int, seed: int = 0) -> TableTensors:
    random = torch.Generator().manual_seed(seed)
    numbers = torch.randn(count, 3, generator=random)
    return TableTensors(numbers, torch.randint(4, (count, 1), generator=random), numbers[:, :1], torch.ones(count))


def rates(preset: Hyperparameters, limits: TimeBudget = NO_LIMITS) -> list[float]:
    """The learning rates of all steps."""
    seen: list[float] = []
    learner = TableTrainer(model(), rows(64), None, target=AMOUNTS, preset=preset, seed=0)
    step = learner.train_step.step

    def noted(some: TableTensors, rate: float, size: int) -> Tensor:
        seen.append(rate)
        return step(some, rate, size)

    learner.train_step.step = noted  # pyright: ignore[reportAttributeAccessIssue]
    learner.train(limits, lambda epoch: None)
    return seen


@pytest.mark.parametrize("grad_clip", [None, 1e-3])
def test_a_step_part_by_part_has_the_loss_and_gradients_of_one_in_one_go(
    grad_clip: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train_step, "FEWEST", 1)
    some = replace(rows(40), weight=torch.linspace(0, 2, 40))
    found = list[list[Tensor | None]]()
    for concat_rows in (stepping.CPU_CHUNK_VALUES, 1000):
        monkeypatch.setattr(train_step, "TOGETHER", concat_rows)
        made = TableTrainStep(papers().train(), AMOUNTS, Hyperparameters(grad_clip=grad_clip))
        found.append([made.step(some, 0.0, 40), *(weights.grad for weights in made.parameters)])
    assert 1 < stepping.cpu_micro_batch_size(papers(), some) < 40
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_the_wider_a_table_the_fewer_rows_are_together() -> None:
    tables = [TableTensors(torch.zeros(1, wide), torch.zeros(1, 0)) for wide in (3, 50, 9_999)]
    sizes = [stepping.cpu_micro_batch_size(papers(), table) for table in tables]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > 256 > sizes[-1] == stepping.MIN_CPU_CHUNK_ROWS


def test_a_falling_rate_rises_first_and_ends_at_nothing() -> None:
    found = rates(Hyperparameters(schedule="cosine", warmup=0.1, lr=1e-2, batch_size=32, epochs=20))
    assert len(found) == 40
    top = found.index(max(found))
    assert 0 < top <= 5 and found[:top] == sorted(found[:top])
    assert found[top:] == sorted(found[top:], reverse=True)
    assert found[-1] < 1e-3 * max(found) * 10 and max(found) < 1e-2


def test_a_constant_rate_stays() -> None:
    assert set(rates(Hyperparameters(lr=1e-2, batch_size=32, epochs=3))) == {1e-2}


def test_with_little_time_the_rate_falls_with_the_time() -> None:
    class Half(TimeBudget):
        def share(self) -> float:
            return 0.5

    found = rates(Hyperparameters(schedule="cosine", warmup=0.0, lr=1e-2, batch_size=32, epochs=50), Half(seconds=1.0))
    assert found[0] == pytest.approx(0.5e-2) and found[10] == pytest.approx(0.5e-2)
    assert math.isclose(found[60], 1e-2 * (1 + math.cos(math.pi * 0.6)) / 2)


def test_more_rows_and_a_cpu_mean_fewer_members() -> None:
    on_cpu, on_gpu = (
        [
            resolve_hyperparameters(OURS, TrainingContext(rows, tokens=10, device=device)).n_members
            for rows in (13_000, 50_000, 500_000)
        ]
        for device in ("cpu", "cuda")
    )
    assert on_cpu == sorted(on_cpu, reverse=True) and on_cpu[-1] == 1
    assert all(few < many for few, many in zip(on_cpu, on_gpu, strict=True))


def test_the_more_rows_the_larger_the_model_and_the_less_is_dropped() -> None:
    found = [
        resolve_hyperparameters(OURS, TrainingContext(rows, tokens=10, device="cuda"))
        for rows in (5_000, 50_000, 500_000)
    ]
    sizes = [(one.dim, one.depth) for one in found]
    assert sizes == sorted(sizes) and sizes[0] < sizes[-1]
    is_regression = resolve_hyperparameters(OURS, TrainingContext(50_000, tokens=10, device="cuda", is_regression=True))
    few, many, most, of_amounts = (one.attention_dropout or 0.0 for one in (*found, is_regression))
    assert few >= many > of_amounts > most


def test_the_less_time_there_is_the_fewer_members_and_enough_of_it_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(autosize, "products_a_second", lambda: 1e10)
    times = (1.0, 200.0, 3600.0, None)
    found = [
        resolve_hyperparameters(OURS, TrainingContext(5_000, tokens=15, device="cpu", seconds=seconds)).n_members
        for seconds in times
    ]
    assert found == sorted(found) and found[0] == 1 < found[1] < found[2] == found[3]


def test_what_is_told_stays_as_it_is() -> None:
    told = Hyperparameters(model="TableTransformer", dim=24, n_members=3)
    assert resolve_hyperparameters(told, TrainingContext(10**6, tokens=50, device="cpu")) == told


def test_long_tables_are_gone_through_less_often() -> None:
    assert [scheduled_epochs(OURS, steps) for steps in (1, 100, 800, 10**6)] == [300, 40, 10, 4]
    assert scheduled_epochs(Hyperparameters(), 100) is None


@pytest.mark.cuda
@pytest.mark.filterwarnings("ignore")  # the compiler has warnings of its own
@pytest.mark.parametrize(("half", "compile"), [(False, False), (True, False), (False, True)])
def test_captured_steps_learn_what_plain_ones_do(half: bool, compile: bool) -> None:
    device, found = torch.device("cuda"), list[Tensor]()
    for captured in (True, False):
        made = model().to(device).train()
        stepping = TableTrainStep(made, AMOUNTS, Hyperparameters(lr=1e-2, half=half, compile=compile, grad_clip=1.0))
        losses = []
        for number in range(12):
            some = rows(32, number).to(device)
            losses.append(stepping.step(some, 1e-2, 32 if captured else 99).clone())
        found.append(torch.stack(losses))
        assert (stepping.graph is not None) == captured
    torch.testing.assert_close(found[0], found[1], atol=2e-2 if half else 1e-5, rtol=2e-2 if half else 1e-4)


@pytest.mark.cuda
def test_a_capture_leaves_no_trace_in_weights_and_dice() -> None:
    device = torch.device("cuda")
    stepping = TableTrainStep(model(0.5).to(device).train(), AMOUNTS, Hyperparameters(lr=1e-2))
    before = [weights.detach().clone() for weights in stepping.parameters]
    dice = torch.cuda.get_rng_state(device)
    stepping._captured(rows(32).to(device))
    for old, weights in zip(before, stepping.parameters, strict=True):
        assert torch.equal(old, weights)
    assert torch.equal(dice, torch.cuda.get_rng_state(device))
    assert all(not value.any() for state in stepping.optimizer.state.values() for value in state.values())


@pytest.mark.cuda
@pytest.mark.filterwarnings("ignore")  # the compiler has warnings of its own
@pytest.mark.parametrize("compile", [False, True])
def test_captured_steps_have_new_dice_each_time(compile: bool) -> None:
    device = torch.device("cuda")
    stepping = TableTrainStep(model(0.5).to(device).train(), AMOUNTS, Hyperparameters(lr=1e-2, compile=compile))
    some = rows(32).to(device)
    losses = {stepping.step(some, 0.0, 32).item() for _ in range(5)}
    assert len(losses) == 5
