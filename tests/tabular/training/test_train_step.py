"""Training steps, eager and captured, and automatic hyperparameters."""

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
from softlook.tabular.training.autosize import (
    TrainingContext,
    limit_step_cost,
    macs_per_row,
    resolve_hyperparameters,
    scheduled_epochs,
)
from softlook.tabular.training.train_step import TableTrainStep
from softlook.tabular.training.trainer import TableTrainer, TimeBudget

TARGET = RegressionTarget(np.zeros(1), np.ones(1), ())
UNLIMITED = TimeBudget()
DEFAULT = PRESETS["table"]["default"]


def model(dropout: float = 0.0) -> TableTransformer:
    torch.manual_seed(0)
    config = TableTransformerConfig(
        n_numeric=3,
        cardinalities=(4,),
        ensemble_size=2,
        dim=16,
        depth=2,
        heads=2,
        bins=8,
        attention_dropout=dropout,
        hidden_dropout=dropout,
    )
    return TableTransformer(config)


def ft_transformer() -> FTTransformer:
    torch.manual_seed(0)
    sizes = {"dim": 16, "heads": 2, "attention_dropout": 0.0, "hidden_dropout": 0.0}
    return FTTransformer(FTTransformerConfig(n_numeric=3, cardinalities=(4,), depth=2, **sizes))


def rows(count: int, seed: int = 0) -> TableTensors:
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(count, 3, generator=generator)
    return TableTensors(numbers, torch.randint(4, (count, 1), generator=generator), numbers[:, :1], torch.ones(count))


def learning_rates(hparams: Hyperparameters, budget: TimeBudget = UNLIMITED) -> list[float]:
    """The learning rates of all steps."""
    recorded: list[float] = []
    trainer = TableTrainer(model(), rows(64), None, target=TARGET, hparams=hparams, seed=0)
    step = trainer.train_step.step

    def record(some: TableTensors, lr: float, batch_size: int) -> Tensor:
        recorded.append(lr)
        return step(some, lr, batch_size)

    trainer.train_step.step = record  # pyright: ignore[reportAttributeAccessIssue]
    trainer.train(budget, lambda epoch: None)
    return recorded


@pytest.mark.parametrize("grad_clip", [None, 1e-3])
def test_micro_batches_have_the_loss_and_gradients_of_the_whole_batch(
    grad_clip: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train_step, "MIN_CPU_CHUNK_ROWS", 1)
    some = replace(rows(40), weight=torch.linspace(0, 2, 40))
    results = list[list[Tensor | None]]()
    for values in (train_step.CPU_CHUNK_VALUES, 1000):
        monkeypatch.setattr(train_step, "CPU_CHUNK_VALUES", values)
        step = TableTrainStep(ft_transformer().train(), TARGET, Hyperparameters(grad_clip=grad_clip))
        results.append([step.step(some, 0.0, 40), *(weights.grad for weights in step.parameters)])
    assert 1 < train_step.cpu_micro_batch_size(ft_transformer(), some) < 40
    for whole, accumulated in zip(*results, strict=True):
        torch.testing.assert_close(whole, accumulated)


def test_wider_tables_have_smaller_micro_batches() -> None:
    tables = [TableTensors(torch.zeros(1, wide), torch.zeros(1, 0)) for wide in (3, 50, 9_999)]
    sizes = [train_step.cpu_micro_batch_size(ft_transformer(), table) for table in tables]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > 256 > sizes[-1] == train_step.MIN_CPU_CHUNK_ROWS


def test_a_cosine_schedule_warms_up_and_decays_to_zero() -> None:
    lrs = learning_rates(Hyperparameters(schedule="cosine", warmup=0.1, lr=1e-2, batch_size=32, epochs=20))
    assert len(lrs) == 40
    peak = lrs.index(max(lrs))
    assert 0 < peak <= 5 and lrs[:peak] == sorted(lrs[:peak])
    assert lrs[peak:] == sorted(lrs[peak:], reverse=True)
    assert lrs[-1] < 1e-3 * max(lrs) * 10 and max(lrs) < 1e-2


def test_a_constant_schedule_keeps_the_learning_rate() -> None:
    assert set(learning_rates(Hyperparameters(lr=1e-2, batch_size=32, epochs=3))) == {1e-2}


def test_under_a_time_limit_the_learning_rate_decays_with_time() -> None:
    class HalfElapsed(TimeBudget):
        def elapsed_fraction(self) -> float:
            return 0.5

    lrs = learning_rates(
        Hyperparameters(schedule="cosine", warmup=0.0, lr=1e-2, batch_size=32, epochs=50), HalfElapsed(seconds=1.0)
    )
    assert lrs[0] == pytest.approx(0.5e-2) and lrs[10] == pytest.approx(0.5e-2)
    assert math.isclose(lrs[60], 1e-2 * (1 + math.cos(math.pi * 0.6)) / 2)


def test_more_rows_and_a_cpu_mean_fewer_ensemble_members() -> None:
    on_cpu, on_gpu = (
        [
            resolve_hyperparameters(DEFAULT, TrainingContext(rows, tokens=10, device=device)).n_members
            for rows in (13_000, 50_000, 500_000)
        ]
        for device in ("cpu", "cuda")
    )
    assert on_cpu == sorted(on_cpu, reverse=True) and on_cpu[-1] == 1
    assert all(few < many for few, many in zip(on_cpu, on_gpu, strict=True))


def test_more_rows_mean_a_larger_model_and_less_dropout() -> None:
    resolved = [
        resolve_hyperparameters(DEFAULT, TrainingContext(rows, tokens=10, device="cuda"))
        for rows in (5_000, 50_000, 500_000)
    ]
    sizes = [(one.dim, one.depth) for one in resolved]
    assert sizes == sorted(sizes) and sizes[0] < sizes[-1]
    context = TrainingContext(50_000, tokens=10, device="cuda", is_regression=True)
    regression = resolve_hyperparameters(DEFAULT, context)
    small, medium, large, of_regression = (one.attention_dropout or 0.0 for one in (*resolved, regression))
    assert small >= medium > of_regression > large


def test_a_shorter_time_limit_means_a_smaller_model_and_a_long_one_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(autosize, "training_macs_per_second", lambda *sizes: 1e10)
    context = TrainingContext(5_000, tokens=15, device="cpu")
    resolved = [resolve_hyperparameters(DEFAULT, replace(context, seconds=one)) for one in (1, 40, 200, 3600, None)]
    sizes = [(one.depth, one.n_members) for one in resolved]
    assert sizes == sorted(sizes)
    assert sizes[0] == (1, 1) and sizes[1][0] == 1 < sizes[1][1]
    assert sizes[2][0] == 2 and sizes[3] == sizes[4]


def test_a_step_takes_a_small_fraction_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autosize, "training_macs_per_second", lambda *sizes: 1e10)
    wide = TrainingContext(1_000, tokens=300, device="cpu", seconds=1.0)
    limited = limit_step_cost(resolve_hyperparameters(DEFAULT, wide), wide, may_drop_dropout=True)
    assert limited.batch_size is not None
    seconds = 3 * limited.batch_size * limited.n_members * macs_per_row(limited, 300) / 1e10
    assert 0.005 < seconds <= 0.02


def test_given_hyperparameters_stay() -> None:
    given = Hyperparameters(model="TableTransformer", dim=24, n_members=3)
    assert resolve_hyperparameters(given, TrainingContext(10**6, tokens=50, device="cpu")) == given


def test_long_tables_are_trained_for_fewer_epochs() -> None:
    assert [scheduled_epochs(DEFAULT, steps) for steps in (1, 100, 800, 10**6)] == [300, 40, 10, 4]
    assert scheduled_epochs(Hyperparameters(), 100) is None


@pytest.mark.cuda
@pytest.mark.filterwarnings("ignore")  # of the compiler
@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize(("mixed_precision", "compile"), [(False, False), (True, False), (False, True)])
def test_captured_steps_equal_eager_ones(mixed_precision: bool, compile: bool) -> None:
    device, results = torch.device("cuda"), list[Tensor]()
    hparams = Hyperparameters(lr=1e-2, mixed_precision=mixed_precision, compile=compile, grad_clip=1.0)
    for is_captured in (True, False):
        step = TableTrainStep(model().to(device).train(), TARGET, hparams)
        losses = []
        for number in range(12):
            some = rows(32, number).to(device)
            losses.append(step.step(some, 1e-2, 32 if is_captured else 99).clone())
        results.append(torch.stack(losses))
        assert (step.replay is not None) == is_captured
    atol, rtol = (2e-2, 2e-2) if mixed_precision else (1e-5, 1e-4)
    torch.testing.assert_close(results[0], results[1], atol=atol, rtol=rtol)


@pytest.mark.cuda
def test_a_capture_changes_neither_weights_nor_random_state() -> None:
    device = torch.device("cuda")
    step = TableTrainStep(model(0.5).to(device).train(), TARGET, Hyperparameters(lr=1e-2))
    before = [weights.detach().clone() for weights in step.parameters]
    rng_state = torch.cuda.get_rng_state(device)
    step._capture(rows(32).to(device))
    for old, weights in zip(before, step.parameters, strict=True):
        assert torch.equal(old, weights)
    assert torch.equal(rng_state, torch.cuda.get_rng_state(device))
    assert all(not value.any() for state in step.optimizer.state.values() for value in state.values())


@pytest.mark.cuda
@pytest.mark.filterwarnings("ignore")  # of the compiler
@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize("compile", [False, True])
def test_captured_steps_have_a_new_dropout_mask_each_time(compile: bool) -> None:
    device = torch.device("cuda")
    step = TableTrainStep(model(0.5).to(device).train(), TARGET, Hyperparameters(lr=1e-2, compile=compile))
    some = rows(32).to(device)
    losses = {step.step(some, 0.0, 32).item() for _ in range(5)}
    assert len(losses) == 5


@pytest.mark.parametrize(
    ("rows", "device", "seconds", "expected"),
    [
        (200_000, "cuda", None, True),
        (200_000, "cuda", 30.0, False),
        (5_000, "cuda", None, False),
        (200_000, "cpu", None, False),
    ],
)
def test_steps_are_compiled_where_that_repays(rows: int, device: str, seconds: float | None, expected: bool) -> None:
    context = TrainingContext(rows=rows, tokens=9, device=device, seconds=seconds)
    assert bool(resolve_hyperparameters(DEFAULT, context).compile) == expected
    for given in (True, False):
        assert resolve_hyperparameters(replace(DEFAULT, compile=given), context).compile is given


def test_a_step_that_cannot_be_compiled_is_captured_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    step = TableTrainStep(ft_transformer(), TARGET, Hyperparameters())

    def fail(model: object, rows: TableTensors) -> Tensor:
        raise RuntimeError("no compiler")

    assert step._warm_up(rows(16), fail) is train_step.ensemble_outputs
    assert "not compiled: RuntimeError: no compiler" in caplog.text
