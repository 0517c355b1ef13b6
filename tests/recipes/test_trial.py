"""What a trial says is what a run does: within a factor of two, on whatever else the machine is busy with."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from softlook.recipes.carrying import carry_out, rehearse
from softlook.recipes.classification import Classification
from softlook.recipes.foretelling import Foretold
from softlook.recipes.job import Job
from softlook.recipes.told import told
from softlook.recipes.translation import Translation
from softlook.recipes.trial import bytes_of, numbers_in, pace_of, saving
from softlook.train.events import Trained as Step
from softlook.train.learner import OPTIMIZER
from tests.recipes.small import classifying, translating

TASKS: dict[str, tuple[Job[Any, Any], Any]] = {
    "translate": (Translation(), translating),
    "classify": (Classification(), classifying),
}


class Kept:
    """Counts, in another way than a trial does, what every forward pass of a run keeps for the way back."""

    def __init__(self) -> None:
        self.alive: dict[int, torch.Tensor] = {}
        self.most = 0

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        self.alive[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    def unpack(self, tensor: torch.Tensor) -> torch.Tensor:
        if self.alive:  # the way back begins: all that was kept is there now
            sizes = (one.untyped_storage().nbytes() for one in self.alive.values() if not is_weight(one))
            self.most, self.alive = max(self.most, sum(sizes)), {}
        return tensor


def is_weight(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, nn.Parameter) or isinstance(tensor._base, nn.Parameter)


def asked(task: str, folder: Path, **more: Any) -> Any:
    return told(TASKS[task][1](folder, steps=60, sinks=("none",), **more))


def foretold(task: str, folder: Path, **more: Any) -> Foretold[Any]:
    return rehearse(TASKS[task][0], asked(task, folder, **more))


@pytest.mark.parametrize("task", TASKS)
def test_a_run_takes_the_memory_that_was_foretold(task: str, tmp_path: Path) -> None:
    found = foretold(task, tmp_path)
    kept = Kept()
    with torch.autograd.graph.saved_tensors_hooks(kept.pack, kept.unpack):
        trained = carry_out(TASKS[task][0], asked(task, tmp_path))
    memory = found.memory
    assert memory is not None
    assert memory.activations / 2 < kept.most < 2 * memory.activations
    weights = sum(p.numel() * p.element_size() for p in trained.model.parameters())
    assert weights <= memory.weights < 1.1 * weights + 10_000  # and what is no weight but kept with them
    assert memory.gradients == weights
    (newest, *_) = sorted((trained.folder / "checkpoints").glob("step-*"), reverse=True)
    on_disk = (newest / OPTIMIZER).stat().st_size
    assert memory.optimizer / 2 < on_disk < 2 * memory.optimizer
    assert memory.total == sum(memory.to_json().values()) - memory.total - memory.data_on_disk


@pytest.mark.slow  # a busy machine gets three tries
@pytest.mark.parametrize("task", TASKS)
def test_a_run_takes_the_time_that_was_foretold(task: str, tmp_path: Path) -> None:
    sizes = {"size": type(asked(task, tmp_path).schema().size)(dim=128, depth=2, heads=4, dropout=0.1)}
    seen = []
    for attempt in range(3):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        found = foretold(task, folder, **sizes)
        heard: list[Any] = []
        carry_out(TASKS[task][0], asked(task, folder, **sizes), [heard.append])
        took = [event for event in heard if isinstance(event, Step)][-1].seconds
        assert found.pace is not None
        seen.append(60 * found.pace / took)
        if 0.5 < seen[-1] < 2:
            return
    pytest.fail(f"foretold / taken: {seen}")


def test_one_small_batch_does_not_make_a_run_look_short() -> None:
    usual = [(1.0 + number / 100, 100) for number in range(10)]
    assert pace_of(usual) == pytest.approx(1.01)  # the first one warms up
    assert 0.8 < pace_of([*usual, (0.02, 1)]) < 1.05
    assert pace_of([(2.0, 100)]) == 2.0
    assert numbers_in({"ids": torch.zeros(3, 4), "classes": (torch.zeros(3), None)}) == 15


def test_what_two_tensors_share_counts_once() -> None:
    one = torch.zeros(10)
    assert bytes_of([one, one[:5], torch.zeros(2)]) == 48


def test_weights_are_no_activations_and_views_are_counted_once() -> None:
    layer = nn.Linear(64, 64)
    x = torch.ones(8, 64, requires_grad=True)
    with saving(list(layer.parameters())) as kept:
        layer(x).relu().sum().backward()
    assert sum(kept.values()) == 2 * 8 * 64 * 4  # the input and what relu gave


def test_a_trial_leaves_the_model_and_the_dice_as_they_were(tmp_path: Path) -> None:
    torch.manual_seed(1)
    found = foretold("classify", tmp_path)
    again = foretold("classify", tmp_path)
    for one, other in zip(found.plan.model.parameters(), again.plan.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
        assert one.grad is None
