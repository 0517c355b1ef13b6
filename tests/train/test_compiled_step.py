"""The compiled training step: equal to the eager one, few graphs, exact resuming, and a reason where it is not used."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from softlook.train import Loss
from softlook.train.batching.collate import PackedBatch
from softlook.train.compilation import MAX_SHAPES, LossCompiler, reason_not_to_compile
from softlook.train.events import StepLogged, StepSkipped
from softlook.train.objectives import cross_entropy_sum
from softlook.train.optimizer import build_optimizer
from softlook.train.train_step import TrainStep
from tests.train.tiny import (
    FAST,
    NO_DROPOUT,
    assert_same,
    assert_same_progress,
    batches,
    events_of,
    model,
    rows,
    run_training,
    sentences,
    weights,
)

GPU = torch.device("cuda")


def tiny() -> nn.Module:
    """A language model of plain layers: softlook's own cannot be traced while the tests check their shapes."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Embedding(11, 8), nn.LayerNorm(8), nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 11))


def next_token(network: nn.Module, batch: PackedBatch) -> Loss:
    return cross_entropy_sum(network(batch.ids), batch.labels)


def make_step(backend: str | None, objective: Any = None, **more: Any) -> TrainStep:
    network = tiny()
    settings: dict[str, Any] = {"compile_reason": None, "backend": backend} if backend else {}
    settings |= {"grad_clip": 1.0, **more}
    return TrainStep(network, objective or next_token, build_optimizer(network, FAST), **settings)


def buckets() -> list[PackedBatch]:
    """Batches of three lengths."""
    ordered = sorted(sentences(), key=len)
    return [rows(ordered[start : start + 3]) for start in (0, 9, 18)]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_step_equals_an_eager_one(backend: str) -> None:
    compiled, eager = make_step(backend), make_step(None)
    for batch in buckets() * 3:
        assert compiled.step([batch], lr=0.1) == eager.step([batch], lr=0.1)
    assert_same(compiled.model, eager.model)
    assert compiled.compiler is not None and compiled.compiler.reason is None


def test_each_shape_of_a_batch_is_compiled_once() -> None:
    step = make_step("eager")
    for batch in buckets() * 4:
        step.step([batch], lr=0.1)
    assert step.compiler is not None
    assert (step.compiler.graphs, len(step.compiler.shapes)) == (3, 3)
    assert "3 graphs for 3 shapes" in step.explain()


def test_batches_of_too_many_shapes_run_eagerly() -> None:
    compiler = LossCompiler(lambda model, batch: (model(batch).sum(), 1, None), backend="eager")
    network = nn.Linear(2, 2)
    for _ in range(2):
        for count in range(2, MAX_SHAPES + 5):
            expected = network(torch.ones(count, 2)).sum()
            assert torch.equal(compiler(network, torch.ones(count, 2))[0], expected)
    assert compiler.graphs == MAX_SHAPES
    assert compiler.eager_calls == 2 * 3
    assert "6 batches, of rare shapes or at the start, ran eagerly" in str(compiler)


def test_automatic_compilation_waits_and_compiles_common_shapes_only() -> None:
    compiler = LossCompiler(lambda model, batch: (model(batch).sum(), 1, None), backend="eager", warmup_calls=10)
    network = nn.Linear(2, 2)
    for number in range(60):
        compiler(network, torch.ones(2 if number % 2 else 3 + number, 2))
        assert compiler.graphs == (number > 10)
    assert compiler.eager_calls == 35


def test_steps_of_a_process_do_not_share_their_graphs() -> None:
    for _ in range(MAX_SHAPES + 2):  # torch stops compiling a function after eight graphs
        step = make_step("eager")
        step.step([buckets()[0]], lr=0.1)
        assert step.compiler is not None and step.compiler.graphs == 1


def test_a_step_that_cannot_be_compiled_runs_eagerly_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    def reads_values(network: nn.Module, batch: PackedBatch) -> Loss:
        loss = next_token(network, batch)
        return loss if bool(loss.total > 0) else Loss(-loss.total, loss.count)

    step, eager = make_step("eager", reads_values), make_step(None)
    with caplog.at_level(logging.WARNING, "softlook.train"):
        for batch in buckets():
            assert step.step([batch], lr=0.1) == eager.step([batch], lr=0.1)
    (record,) = caplog.records
    assert "runs eagerly: torch.compile failed with" in record.getMessage()
    assert "eager: torch.compile failed with" in step.explain()


def test_an_error_of_the_objective_is_raised_as_it_is() -> None:
    def broken(network: nn.Module, batch: PackedBatch) -> Loss:
        raise ValueError("no such label")

    with pytest.raises(ValueError, match="^no such label$"):
        make_step("eager", broken).step([buckets()[0]], lr=0.1)


@pytest.mark.parametrize("settings", [{}, {"ema_decay": 0.9, "gradient_accumulation_steps": 2}], ids=["plain", "ema"])
def test_fit_compiles_and_gives_the_losses_of_an_eager_run(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    use_backend(monkeypatch, "eager")
    runs = []
    for compile in (True, False):
        events: list[Any] = []
        trained, _ = run_training(
            None, events, compile=compile, max_steps=8, source=buckets(), objective=next_token, **settings
        )
        runs.append((trained, [event.loss for event in events_of(events, StepLogged)]))
    assert runs[0][1] == runs[1][1]
    assert_same(runs[0][0], runs[1][0])


def test_a_compiled_run_resumes_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_backend(monkeypatch, "aot_eager")
    settings: dict[str, Any] = {"compile": True, "max_steps": 9, "ema_decay": 0.9, "objective": next_token}
    expected, expected_progress = run_training(
        tmp_path / "uninterrupted", model=tiny(), source=batches(max_tokens=60), **settings
    )
    run_training(tmp_path / "run", stop_at=4, model=tiny(), source=batches(max_tokens=60), **settings)
    resumed, progress = run_training(tmp_path / "run", model=tiny(), source=batches(max_tokens=60), **settings)
    assert_same_progress(progress, expected_progress)
    assert_same(resumed, expected)


def use_backend(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    """Compile without a C++ compiler."""
    defaults = TrainStep.__init__.__kwdefaults__ or {}
    monkeypatch.setattr(TrainStep.__init__, "__kwdefaults__", defaults | {"backend": backend})


def test_short_runs_other_devices_and_process_groups_are_not_compiled() -> None:
    limits: dict[str, Any] = {"is_distributed": False, "steps": 10_000, "seconds": None}
    short: dict[str, Any] = limits | {"steps": 10}
    quick: dict[str, Any] = limits | {"seconds": 60.0}
    parallel: dict[str, Any] = limits | {"is_distributed": True}
    cpu = torch.device("cpu")
    assert reason_not_to_compile("auto", GPU, **limits) is None
    assert reason_not_to_compile(True, cpu, **limits) is None
    assert reason_not_to_compile(False, GPU, **limits) == "compile=False"
    assert "this is cpu" in str(reason_not_to_compile("auto", cpu, **limits))
    assert "10 steps" in str(reason_not_to_compile("auto", GPU, **short))
    assert "60 seconds" in str(reason_not_to_compile("auto", GPU, **quick))
    assert "DDP" in str(reason_not_to_compile(True, GPU, **parallel))


# --- on a GPU --------------------------------------------------------------------------------------------------------


@pytest.mark.cuda
def test_a_compiled_gpu_run_has_the_losses_of_an_eager_one() -> None:
    losses: dict[bool, list[float]] = {}
    for compile in (True, False):
        events: list[Any] = []
        settings: dict[str, Any] = {"device": "cuda", "precision": "float32", "max_steps": 9, "source": buckets()}
        settings["objective"] = next_token
        run_training(None, events, model=model(NO_DROPOUT), compile=compile, **settings)
        losses[compile] = [event.loss for event in events_of(events, StepLogged)]
    assert losses[True] == pytest.approx(losses[False], rel=1e-4)


@pytest.mark.cuda
def test_a_nonfinite_step_is_skipped_on_the_device() -> None:
    """The weights, the optimizer and the EMA are as if the step had not been."""

    def weighted(network: nn.Module, batch: tuple[PackedBatch, torch.Tensor]) -> Loss:
        loss = next_token(network, batch[0])
        return Loss(loss.total * batch[1], loss.count)

    one, events = torch.ones(()), list[Any]()
    source = [(batch, one) for batch in buckets()]
    broken = [*source[:2], (source[0][0], one * torch.nan), source[2]]
    settings: dict[str, Any] = {"device": "cuda", "precision": "float32", "objective": weighted}
    settings |= {"compile": False, "optim": FAST.model_copy(update={"schedule": "constant", "warmup": 0})}
    skipped, progress = run_training(None, events, model=model(NO_DROPOUT), source=broken, max_steps=4, **settings)
    expected, _ = run_training(None, model=model(NO_DROPOUT), source=source, max_steps=3, **settings)
    assert [event.step for event in events_of(events, StepSkipped)] == [3]
    assert progress.nonfinite_steps == 0
    torch.testing.assert_close(weights(skipped), weights(expected), rtol=1e-5, atol=1e-6)


@pytest.mark.cuda
def test_the_host_runs_ahead_of_a_gpu_by_one_step() -> None:
    network = model(NO_DROPOUT).cuda()
    step = TrainStep(network, next_token, build_optimizer(network, FAST), grad_clip=1.0)
    assert step.max_in_flight == 1
    assert "one step ahead" in step.explain()
