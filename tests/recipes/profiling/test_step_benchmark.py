"""Step benchmarks predict memory and time of a run."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from softlook.recipes.config.resolve import explicit_overrides
from softlook.recipes.profiling.step_benchmark import (
    count_elements,
    count_saved_tensors,
    storage_bytes,
    typical_step_seconds,
)
from softlook.recipes.text.classification import ClassificationTask
from softlook.recipes.text.prepare import PreparedRun, dry_run
from softlook.recipes.text.run import run_task
from softlook.recipes.text.task import TextTask
from softlook.recipes.text.translation import TranslationTask
from softlook.train.checkpoint.train_state import OPTIMIZER
from softlook.train.events import StepLogged
from tests.recipes.small import classification_config, translation_config

TASKS: dict[str, tuple[TextTask[Any, Any], Any]] = {
    "translate": (TranslationTask(), translation_config),
    "classify": (ClassificationTask(), classification_config),
}


class SavedTensors:
    """Counts saved tensors of a run, in another way than the benchmark."""

    def __init__(self) -> None:
        self.alive: dict[int, torch.Tensor] = {}
        self.peak = 0

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        self.alive[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    def unpack(self, tensor: torch.Tensor) -> torch.Tensor:
        if self.alive:  # the backward pass starts: everything is saved now
            sizes = (one.untyped_storage().nbytes() for one in self.alive.values() if not is_weight(one))
            self.peak, self.alive = max(self.peak, sum(sizes)), {}
        return tensor


def is_weight(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, nn.Parameter) or isinstance(tensor._base, nn.Parameter)


def overrides(task: str, folder: Path, **more: Any) -> Any:
    return explicit_overrides(TASKS[task][1](folder, steps=60, loggers=("none",), **more))


def predicted(task: str, folder: Path, **more: Any) -> PreparedRun:
    return dry_run(TASKS[task][0], overrides(task, folder, **more))


@pytest.mark.parametrize("task", TASKS)
def test_a_run_needs_the_predicted_memory(task: str, tmp_path: Path) -> None:
    prepared = predicted(task, tmp_path)
    saved = SavedTensors()
    with torch.autograd.graph.saved_tensors_hooks(saved.pack, saved.unpack):
        trained = run_task(TASKS[task][0], overrides(task, tmp_path))
    memory = prepared.memory
    assert memory is not None
    assert memory.activations / 2 < saved.peak < 2 * memory.activations
    weights, buffers = (
        sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        for tensors in (trained.model.parameters(), trained.model.buffers())
    )
    assert (memory.weights, memory.gradients) == (weights + buffers, weights)
    (newest, *_) = sorted((trained.run_dir / "checkpoints").glob("step-*"), reverse=True)
    on_disk = (newest / OPTIMIZER).stat().st_size
    assert memory.optimizer / 2 < on_disk < 2 * memory.optimizer
    assert memory.total == sum(memory.to_json().values()) - memory.total - memory.data_on_disk


@pytest.mark.slow  # three attempts on a busy machine
@pytest.mark.parametrize("task", TASKS)
def test_a_run_takes_the_predicted_time(task: str, tmp_path: Path) -> None:
    sizes = {"model": type(overrides(task, tmp_path).schema().model)(dim=128, depth=2, heads=4, dropout=0.1)}
    ratios = []
    for attempt in range(3):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        prepared = predicted(task, folder, **sizes)
        events: list[Any] = []
        run_task(TASKS[task][0], overrides(task, folder, **sizes), [events.append])
        seconds = [event for event in events if isinstance(event, StepLogged)][-1].seconds
        assert prepared.seconds_per_step is not None
        ratios.append(60 * prepared.seconds_per_step / seconds)
        if 0.5 < ratios[-1] < 2:
            return
    pytest.fail(f"predicted / measured: {ratios}")


def test_a_small_batch_does_not_bias_the_step_time() -> None:
    steps = [(1.0 + number / 100, 100) for number in range(10)]
    assert typical_step_seconds(steps) == pytest.approx(1.01)  # the first one includes warmup
    assert 0.8 < typical_step_seconds([*steps, (0.02, 1)]) < 1.05
    assert typical_step_seconds([(2.0, 100)]) == 2.0
    assert count_elements({"ids": torch.zeros(3, 4), "classes": (torch.zeros(3), None)}) == 15


def test_shared_storage_counts_once() -> None:
    one = torch.zeros(10)
    assert storage_bytes([one, one[:5], torch.zeros(2)]) == 48


def test_saved_tensors_exclude_weights_and_count_views_once() -> None:
    layer = nn.Linear(64, 64)
    x = torch.ones(8, 64, requires_grad=True)
    with count_saved_tensors(list(layer.parameters())) as saved:
        layer(x).relu().sum().backward()
    assert sum(saved.values()) == 2 * 8 * 64 * 4  # the input and the output of relu


def test_a_benchmark_leaves_model_and_rng_state_unchanged(tmp_path: Path) -> None:
    torch.manual_seed(1)
    prepared = predicted("classify", tmp_path)
    again = predicted("classify", tmp_path)
    for one, other in zip(prepared.plan.model.parameters(), again.plan.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
        assert one.grad is None
