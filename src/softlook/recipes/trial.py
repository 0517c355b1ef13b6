"""A few steps on trial, with a copy of the model: how long one takes, and how much memory it does."""

import copy
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from softlook.recipes.sizing import Room
from softlook.train.batches import Batches, Place
from softlook.train.device import choose_precision
from softlook.train.optimizer import make_optimizer, remembered
from softlook.train.progress import dice_kept
from softlook.train.settings import Optim
from softlook.train.step import Objective, Stepper
from softlook.train.tensors import each
from softlook.weights.hollow import own_tensors

TRIES, LONGEST_TRY = 24, 3.0
"""Steps, and seconds, that are spent on finding out how long a step takes."""
USUALLY = {"cpu": 1.2, "cuda": 1.05}
"""How much longer than the quickest a step usually takes, as others may be at work too."""
WATCHED = 3
"""Steps in which is counted what they keep."""
STILL = 1e-9
"""The learning rate of a trial."""
Spent = list[tuple[float, int]]
Step = Callable[[Any], object]
"""A step on a batch, which is over when it comes back."""


@dataclass(frozen=True)
class Trial:
    """What a step takes: seconds, and bytes."""

    pace: float
    weights: int
    gradients: int
    optimizer: int
    activations: int
    """The most that a batch took: on a GPU at the peak of a step, elsewhere what is kept for the way back."""


def tried(model: nn.Module, batches: Batches, objective: Objective, room: Room, precision: Any) -> Trial:
    """What a step on text takes."""
    kind = choose_precision(precision, room.device)

    def stepping(twin: nn.Module) -> tuple[Optimizer, Step]:
        stepper = Stepper(twin, objective, make_optimizer(twin, Optim()), clip=1.0, kind=kind)
        return stepper.optimizer, lambda batch: stepper.step([batch], STILL)

    return measured(model, stepping, (batch for _, batch in batches.start(Place())), room.device)


def measured(
    model: nn.Module,
    stepping: Callable[[nn.Module], tuple[Optimizer, Step]],
    batches: Iterable[Any],
    device: torch.device,
) -> Trial:
    """The quickest step of a few, as others may be at work too, and the largest. The model itself stays as it is.

    `stepping` says how a copy of it makes a step, and with which optimizer.
    """
    with dice_kept(device):
        before = _allocated(device)
        twin = copy.deepcopy(model).to(device).train()
        optimizer, step = stepping(twin)
        parameters = [parameter for parameter in twin.parameters() if parameter.requires_grad]
        spent, kept = steps_of(step, batches, parameters, device)
        weights = bytes_of(own_tensors(twin).values())
        gradients = bytes_of(p.grad for p in parameters if p.grad is not None)
        remembering = bytes_of(remembered(twin, optimizer).values())
        if device.type == "cuda":
            peak = torch.cuda.max_memory_allocated(device) - before
            kept = max(peak - weights - gradients - remembering, 0)
    usually = USUALLY.get(device.type, USUALLY["cpu"])
    return Trial(max(usually * pace_of(spent), 1e-4), weights, gradients, remembering, kept)


def pace_of(spent: Spent) -> float:
    """Seconds for a batch of the usual size, at the speed of the quickest step: the last batch of its length is small.

    >>> pace_of([(9.0, 100), (1.0, 100), (0.1, 5), (1.5, 100)])
    0.683...
    """
    later = spent[1:] or spent  # the first one also warms up
    return min(seconds / size for seconds, size in later) * sum(size for _, size in later) / len(later)


def steps_of(
    step: Step, batches: Iterable[Any], parameters: list[nn.Parameter], device: torch.device
) -> tuple[Spent, int]:
    """Seconds of each step and the size of its batch, and the most bytes that one of the first ones kept."""
    spent: Spent = []
    most = 0
    for batch in islice(batches, TRIES + 1):
        if device.type == "cuda":
            step(batch)  # kernels are made when they first meet a size
        began = time.monotonic()
        if device.type == "cuda" or len(spent) >= WATCHED:
            step(batch)
        else:
            with saving(parameters) as kept:
                step(batch)
            most = max(most, sum(kept.values()))
        spent.append((time.monotonic() - began, numbers_in(batch)))
        if sum(seconds for seconds, _ in spent) > LONGEST_TRY and len(spent) > 2:
            break
    return spent, most


@contextmanager
def saving(weights: Sequence[Tensor]) -> Iterator[dict[int, int]]:
    """Counts what is kept for the way back, weights aside: bytes, by where they lie, so that nothing counts twice.

    >>> x = torch.ones(100, requires_grad=True)
    >>> with saving([x]) as kept:
    ...     _ = (x * x).exp().sum().backward()
    >>> sum(kept.values())
    400
    """
    kept: dict[int, int] = {}
    known = {weight.untyped_storage().data_ptr() for weight in weights}

    def count(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        yield kept


def numbers_in(batch: Any) -> int:
    """How large a batch is."""
    sizes: list[int] = []
    each(batch, lambda tensor: sizes.append(tensor.numel()) or tensor)
    return max(sum(sizes), 1)


def bytes_of(tensors: Any) -> int:
    """How much room tensors take; what two of them share counts once."""
    return sum({one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in tensors}.values())


def _allocated(device: torch.device) -> int:
    if device.type != "cuda":
        return 0
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device)
