"""Step benchmark: time and memory of a few training steps."""

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

from softlook.base.tensors import map_tensors
from softlook.train.batching.batches import Batches, DataCursor
from softlook.train.config import OptimizerConfig
from softlook.train.mixed_precision import choose_dtype
from softlook.train.optimizer import build_optimizer, optimizer_state
from softlook.train.rng import preserve_rng_states
from softlook.train.train_step import Objective, TrainStep
from softlook.weights.meta import unique_tensors

MAX_STEPS, MAX_SECONDS = 24, 3.0
"""Limits of a benchmark."""
SLOWDOWN = {"cpu": 1.2, "cuda": 1.05}
"""Typical step time relative to the fastest one, since other processes may be running."""
MEMORY_STEPS = 3
"""Steps in which saved activations are counted."""
BENCHMARK_LR = 1e-9
"""Learning rate during a benchmark."""
StepTimes = list[tuple[float, int]]
"""Seconds of each step, and the elements of its batch."""
Step = Callable[[Any], object]
"""Runs one step on a batch, and waits for the device."""


@dataclass(frozen=True)
class StepProfile:
    """Seconds per step, and bytes."""

    seconds: float
    weights: int
    gradients: int
    optimizer: int
    activations: int
    """Of the largest batch: on a GPU the peak of a step, elsewhere the tensors saved for the backward pass."""


def profile_text_step(
    model: nn.Module, batches: Batches, objective: Objective, device: torch.device, precision: Any
) -> StepProfile:
    """Profile training steps of a text model."""
    dtype = choose_dtype(precision, device)

    def make_step(model: nn.Module) -> tuple[Optimizer, Step]:
        step = TrainStep(model, objective, build_optimizer(model, OptimizerConfig()), grad_clip=1.0, dtype=dtype)
        return step.optimizer, lambda batch: step.step([batch], BENCHMARK_LR)

    return profile_step(model, make_step, (batch for _, batch in batches.iter_from(DataCursor())), device)


def profile_step(
    model: nn.Module,
    make_step: Callable[[nn.Module], tuple[Optimizer, Step]],
    batches: Iterable[Any],
    device: torch.device,
) -> StepProfile:
    """The time of the fastest of a few steps, and the memory of the largest. The steps run on a copy of the model.

    `make_step` returns an optimizer and a step function for the copy.
    """
    with preserve_rng_states(device):
        before = _allocated(device)
        model = copy.deepcopy(model).to(device).train()
        optimizer, step = make_step(model)
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        times, activations = time_steps(step, batches, parameters, device)
        weights = storage_bytes(unique_tensors(model).values())
        gradients = storage_bytes(p.grad for p in parameters if p.grad is not None)
        state = storage_bytes(optimizer_state(model, optimizer).values())
        if device.type == "cuda":
            peak = torch.cuda.max_memory_allocated(device) - before
            activations = max(peak - weights - gradients - state, 0)
    slowdown = SLOWDOWN.get(device.type, SLOWDOWN["cpu"])
    seconds = max(slowdown * typical_step_seconds(times), 1e-4)
    return StepProfile(seconds, weights, gradients, state, activations)


def typical_step_seconds(times: StepTimes) -> float:
    """Seconds for a batch of average size, at the throughput of the fastest step.

    >>> typical_step_seconds([(9.0, 100), (1.0, 100), (0.1, 5), (1.5, 100)])
    0.683...
    """
    later = times[1:] or times  # the first step includes warmup
    return min(seconds / size for seconds, size in later) * sum(size for _, size in later) / len(later)


def time_steps(
    step: Step, batches: Iterable[Any], parameters: list[nn.Parameter], device: torch.device
) -> tuple[StepTimes, int]:
    """The time and batch size of each step, and the most bytes that one of the first steps saved."""
    times: StepTimes = []
    activations = 0
    for batch in islice(batches, MAX_STEPS + 1):
        if device.type == "cuda":
            step(batch)  # compiles kernels for a new size
        began = time.monotonic()
        if device.type == "cuda" or len(times) >= MEMORY_STEPS:
            step(batch)
        else:
            with count_saved_tensors(parameters) as saved:
                step(batch)
            activations = max(activations, sum(saved.values()))
        times.append((time.monotonic() - began, count_elements(batch)))
        if sum(seconds for seconds, _ in times) > MAX_SECONDS and len(times) > 2:
            break
    return times, activations


@contextmanager
def count_saved_tensors(weights: Sequence[Tensor]) -> Iterator[dict[int, int]]:
    """Count the bytes saved for the backward pass, without the weights, by storage.

    >>> x = torch.ones(100, requires_grad=True)
    >>> with count_saved_tensors([x]) as saved:
    ...     _ = (x * x).exp().sum().backward()
    >>> sum(saved.values())
    400
    """
    saved: dict[int, int] = {}
    known = {weight.untyped_storage().data_ptr() for weight in weights}

    def count(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        yield saved


def count_elements(batch: Any) -> int:
    """The number of tensor elements in a batch."""
    sizes: list[int] = []
    map_tensors(batch, lambda tensor: sizes.append(tensor.numel()) or tensor)
    return max(sum(sizes), 1)


def storage_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of the tensors; shared storage counts once."""
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())


def _allocated(device: torch.device) -> int:
    if device.type != "cuda":
        return 0
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device)
