"""One update: gradient accumulation is exact, non-finite steps are skipped, and out-of-memory errors split batches."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from softlook.base.errors import TrainingError
from softlook.train import Loss
from softlook.train.batching.collate import PackedBatch
from softlook.train.checkpoint.checkpoint_manager import CheckpointManager
from softlook.train.events import BatchSplit, Finished, StepSkipped
from softlook.train.objectives import causal_lm
from softlook.train.optimizer import build_optimizer
from softlook.train.train_step import Objective, StepResult, TrainStep
from softlook.weights.schema import read_json
from tests.train.tiny import (
    FAST,
    NO_DROPOUT,
    Line,
    assert_same,
    distance,
    events_of,
    make_evaluator,
    model,
    rows,
    run_training,
    sentences,
    weights,
)


def make_train_step(objective: Objective | None = None, grad_clip: float = 1e9, **more: Any) -> TrainStep:
    network = model(NO_DROPOUT).double()
    return TrainStep(network, objective or causal_lm(), build_optimizer(network, FAST), grad_clip=grad_clip, **more)


def gradients(train_step: TrainStep) -> list[Tensor]:
    return [p.grad for p in train_step.parameters if p.grad is not None]


def uneven_batches() -> list[PackedBatch]:
    """Batches with very different numbers of targets."""
    gradient = sorted(sentences(), key=len)
    return [rows(gradient[:1]), rows(gradient[1:3]), rows(gradient[-12:])]


def test_gradient_accumulation_equals_one_large_batch() -> None:
    accumulated, at_once = make_train_step(), make_train_step()
    one = accumulated.step(uneven_batches(), lr=0.1)
    ordered = sorted(sentences(), key=len)
    other = at_once.step([rows([*ordered[:3], *ordered[-12:]])], lr=0.1)
    assert one.targets == other.targets == sum(len(s) - 1 for s in [*ordered[:3], *ordered[-12:]])
    torch.testing.assert_close(one.loss, other.loss, rtol=1e-12, atol=0)
    torch.testing.assert_close(one.grad_norm, other.grad_norm, rtol=1e-12, atol=0)
    torch.testing.assert_close(gradients(accumulated), gradients(at_once), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(weights(accumulated.model), weights(at_once.model), rtol=1e-6, atol=1e-6)


def test_a_mean_of_means_would_differ() -> None:
    """The counts differ so much that equal weights of the batches would give another loss."""
    losses = [make_train_step().step([batch], lr=0.0).loss for batch in uneven_batches()]
    assert abs(sum(losses) / 3 - make_train_step().step(uneven_batches(), lr=0.0).loss) > 1e-3


def test_the_gradient_is_of_the_mean_over_targets() -> None:
    train_step = make_train_step()
    batch = uneven_batches()[2]
    loss = causal_lm()(train_step.model, batch)
    expected = torch.autograd.grad(loss.total / loss.count, [p for p in train_step.parameters if p.numel()])
    train_step.step([batch], lr=0.0)
    torch.testing.assert_close(gradients(train_step), list(expected), rtol=1e-9, atol=1e-12)


def test_gradient_clipping_bounds_the_norm_over_all_batches() -> None:
    unclipped, clipped = make_train_step(), make_train_step(grad_clip=0.01)
    one, other = unclipped.step(uneven_batches(), lr=0.0), clipped.step(uneven_batches(), lr=0.0)
    assert one.grad_norm == other.grad_norm > 0.01
    for gradient, clipped_gradient in zip(gradients(unclipped), gradients(clipped), strict=True):
        torch.testing.assert_close(clipped_gradient, gradient * 0.01 / one.grad_norm, rtol=1e-4, atol=1e-12)
    length = torch.cat([gradient.flatten() for gradient in gradients(clipped)]).norm().item()
    assert length == pytest.approx(0.01, rel=1e-3)


def test_gradients_below_the_limit_are_not_clipped() -> None:
    unclipped, clipped = make_train_step(), make_train_step(grad_clip=100.0)
    unclipped.step(uneven_batches(), lr=0.0)
    clipped.step(uneven_batches(), lr=0.0)
    torch.testing.assert_close(gradients(unclipped), gradients(clipped), rtol=1e-12, atol=0)


def test_a_batch_without_labels_changes_nothing() -> None:
    train_step, other = make_train_step(), make_train_step()
    unlabeled = PackedBatch(*(tensor[:2] for tensor in vars(uneven_batches()[2]).values()))
    unlabeled.labels.fill_(-100)
    assert train_step.step([unlabeled], lr=0.0) == StepResult(loss=0.0, targets=0, grad_norm=0.0, applied=True)
    one, two = train_step.step([unlabeled, *uneven_batches()], lr=0.1), other.step(uneven_batches(), lr=0.1)
    assert (one.targets, one.loss) == (two.targets, pytest.approx(two.loss, rel=1e-12))


def test_steps_report_the_plain_loss_and_train_on_the_smoothed_one() -> None:
    smoothed = causal_lm(label_smoothing=0.3)
    train_step, plain = make_train_step(smoothed), make_train_step()
    other = make_train_step(lambda model, batch: replace(smoothed(model, batch), reported=None))
    one, two = train_step.step(uneven_batches(), lr=0.1), other.step(uneven_batches(), lr=0.1)
    assert one.loss == pytest.approx(plain.step(uneven_batches(), lr=0.1).loss, rel=1e-12)
    assert two.loss != pytest.approx(one.loss, rel=1e-4)
    assert (one.targets, one.grad_norm) == (two.targets, two.grad_norm)
    assert_same(train_step.model, other.model)


def test_a_skipped_step_reports_the_loss_that_was_not_finite() -> None:
    step = make_train_step(lambda model, batch: Loss(causal_lm()(model, batch).total * torch.nan, 3, torch.ones(())))
    assert math.isnan(step.step(uneven_batches()[:1], lr=0.1).loss)


# --- non-finite steps ------------------------------------------------------------------------------------------------


def nonfinite_at(steps: set[int], value: float = torch.nan, *, only_gradient: bool = False) -> Objective:
    """A squared error that is multiplied by `value` at these steps."""
    calls = 0

    def objective(line: nn.Module, batch: Tensor) -> Loss:
        nonlocal calls
        calls += 1
        loss = distance(line, batch)
        if calls not in steps:
            return loss
        if only_gradient:
            loss.total.register_hook(lambda gradient: gradient * value)
            return loss
        return Loss(loss.total * value, loss.count)

    return objective


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("only_gradient", [False, True])
def test_nonfinite_steps_are_skipped_and_reported(value: float, only_gradient: bool) -> None:
    events: list[Any] = []
    objective = nonfinite_at({2, 4}, value, only_gradient=only_gradient)
    line, progress = run_training(None, events, model=Line(), source=[torch.ones(3)], objective=objective, max_steps=6)
    assert torch.isfinite(weights(line)["value"]).all()
    assert [event.step for event in events_of(events, StepSkipped)] == [2, 4]
    assert [event.cursor for event in events_of(events, StepSkipped)] == [(1, 0), (3, 0)]
    assert progress.step == 6
    assert progress.nonfinite_steps == 0


def test_a_skipped_step_leaves_the_optimizer_unchanged(tmp_path: Path) -> None:
    """Two steps with a skipped one between them equal two steps at the same learning rate."""
    train_step, other = make_train_step(), make_train_step()
    batch = uneven_batches()[2]
    train_step.step([batch], lr=0.1)
    train_step.objective = lambda model, batch: Loss(causal_lm()(model, batch).total * torch.nan, 3)
    assert not train_step.step([batch], lr=0.1).applied
    train_step.objective = causal_lm()
    for one, times in ((train_step, 1), (other, 2)):
        for _ in range(times):
            one.step([batch], lr=0.1)
    assert_same(train_step.model, other.model)


def test_too_many_nonfinite_steps_raise_with_step_batch_and_checkpoint(tmp_path: Path) -> None:
    events: list[Any] = []
    source = [torch.ones(2), torch.ones(3)]
    settings: dict[str, Any] = {"source": source, "max_steps": 20, "save_every": 1, "max_nonfinite_steps": 3}
    message = (
        r"^4 steps in a row gave NaN or infinity, the last at step 9 with batch 0 of epoch 4: loss nan, gradient norm "
        r"nan. "
        r"The weights were not changed. The last good checkpoint is .*step-000000005. Try a smaller optim.lr"
    )
    with pytest.raises(TrainingError, match=message):
        run_training(tmp_path, events, model=Line(), objective=nonfinite_at(set(range(6, 99))), **settings)
    assert not events_of(events, Finished)
    assert CheckpointManager(tmp_path).list_checkpoints()[0].name == "step-000000005"


def test_max_nonfinite_steps_in_a_row_are_allowed() -> None:
    _, progress = run_training(
        model=Line(),
        source=[torch.ones(2)],
        objective=nonfinite_at({2, 3, 4, 6, 7, 8}),
        max_steps=10,
        max_nonfinite_steps=3,
    )
    assert progress.step == 10


# --- out of memory ---------------------------------------------------------------------------------------------------


def limit_memory(max_rows: int, error: type[Exception] = torch.OutOfMemoryError) -> tuple[Objective, list[int]]:
    """An objective that runs out of memory above `max_rows` rows, and the batch sizes that fit."""
    batch_sizes: list[int] = []

    def objective(model: nn.Module, batch: PackedBatch) -> Loss:
        if len(batch.ids) > max_rows:
            raise error("CUDA out of memory. Tried to allocate 20.00 MiB")
        batch_sizes.append(len(batch.ids))
        return causal_lm()(model, batch)

    return objective, batch_sizes


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, RuntimeError])
def test_out_of_memory_doubles_the_micro_batches(error: type[Exception]) -> None:
    batch = rows(sorted(sentences(), key=len)[-13:])
    objective, batch_sizes = limit_memory(4, error)
    train_step, other = make_train_step(objective), make_train_step()
    one, two = train_step.step([batch], lr=0.1), other.step([batch], lr=0.1)
    assert (train_step.micro_batches, batch_sizes) == (4, [3, 3, 3, 4])
    assert one.targets == two.targets
    torch.testing.assert_close(gradients(train_step), gradients(other), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(weights(train_step.model), weights(other.model), rtol=1e-6, atol=1e-6)
    batch_sizes.clear()
    train_step.step([batch], lr=0.1)
    assert batch_sizes == [3, 3, 3, 4], "the split is kept"


def test_out_of_memory_in_a_later_batch_keeps_gradients_exact() -> None:
    """The first batch fits, the second does not: the gradients of the first are discarded before the retry."""
    small, large = rows(sentences()[:2]), rows(sentences()[2:12])
    train_step, other = make_train_step(limit_memory(5)[0]), make_train_step()
    train_step.step([small, large], lr=0.1)
    other.step([small, large], lr=0.1)
    torch.testing.assert_close(gradients(train_step), gradients(other), rtol=1e-9, atol=1e-12)


def test_batch_splits_are_reported_and_restored(tmp_path: Path) -> None:
    events: list[Any] = []
    objective, batch_sizes = limit_memory(2)
    settings: dict[str, Any] = {"max_steps": 8, "objective": objective}
    expected, _ = run_training(tmp_path / "uninterrupted", events, **settings)
    splits = [(event.step, event.micro_batches) for event in events_of(events, BatchSplit)]
    assert [micro_batches for _, micro_batches in splits] == [2, 4]
    batch_sizes.clear()
    events.clear()
    run_training(tmp_path / "run", events, stop_at=4, **settings)
    resumed, progress = run_training(tmp_path / "run", events, **settings)
    assert [(event.step, event.micro_batches) for event in events_of(events, BatchSplit)] == splits
    assert progress.micro_batches == 4
    assert_same(resumed, expected)


def test_one_row_out_of_memory_raises() -> None:
    train_step = make_train_step(limit_memory(0)[0])
    with pytest.raises(TrainingError, match=r"^cpu is out of memory, and the batch cannot be split further: CUDA out"):
        train_step.step([rows(sentences()[:3])], lr=0.1)


def test_other_errors_are_not_taken_for_out_of_memory() -> None:
    def broken(model: nn.Module, batch: PackedBatch) -> Loss:
        raise RuntimeError("expected scalar type Long")

    with pytest.raises(RuntimeError, match="expected scalar type Long"):
        make_train_step(broken).step([rows(sentences()[:3])], lr=0.1)


# --- half precision --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_half_precision_trains_with_float32_weights(precision: str) -> None:
    full, _ = run_training(max_steps=12)
    half, _ = run_training(max_steps=12, precision=precision)
    before, one, other = (make_evaluator()(one)["loss"] for one in (model().eval(), full, half))
    assert one == pytest.approx(other, rel=0.01)
    assert one != other
    assert one < before - 0.05
    assert {tensor.dtype for tensor in weights(half).values()} == {torch.float32}


def test_the_loss_scale_is_reduced_and_restored(tmp_path: Path) -> None:
    def steep(line: nn.Module, batch: Tensor) -> Loss:
        """A gradient of 10, which float16 can represent, but not 65,536 times it."""
        return Loss((line.value.half() * 10 * batch.half()).float().sum(), batch.numel())  # pyright: ignore

    events: list[Any] = []
    settings: dict[str, Any] = {"source": [torch.ones(1)], "objective": steep, "precision": "float16"}
    run_training(tmp_path, events, model=Line(), max_steps=9, **settings)
    skipped = len(events_of(events, StepSkipped))
    assert 0 < skipped < 9
    assert loss_scale(tmp_path, 9) == 65536.0 / 2**skipped
    events.clear()
    run_training(tmp_path, events, model=Line(), max_steps=12, **settings)
    assert not events_of(events, StepSkipped), "the scale was not restored"
    assert loss_scale(tmp_path, 12) == loss_scale(tmp_path, 9)


def loss_scale(run: Path, step: int) -> float:
    return read_json(CheckpointManager(run).path(step) / "trainer_state.json")["scaler"]["scale"]
