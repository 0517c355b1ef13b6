"""Time and memory of a training run, measured in a few steps."""

import copy
import gc
import mmap
import sys
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from softlook.base.activity import report_activity
from softlook.base.tensors import map_tensors
from softlook.recipes.profiling.threads import choose_threads
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
SAMPLED_ITEMS = 200
"""Items of a long list whose size is measured."""
LONG_NAMES = {"ema": "EMA weights", "best": "best weights"}
NOT_COUNTED = (type, ModuleType, FunctionType, nn.Module)
"""Objects that are shared with other code, or counted elsewhere."""


@dataclass(frozen=True, kw_only=True)
class MemoryEstimate:
    """Bytes by purpose. Python, torch and temporary buffers come on top."""

    weights: int
    gradients: int
    optimizer: int
    ema: int = 0
    """A second set of weights, if an EMA is kept."""
    activations: int
    """Of the largest batch: on a GPU the peak of a step, elsewhere the tensors saved for the backward pass."""
    data: int = 0
    """Token ids, or table rows, in memory."""
    data_on_disk: int = 0
    """Memory-mapped data."""
    best: int = 0
    """The best weights so far, if they are kept in memory."""

    @property
    def total(self) -> int:
        """Total bytes in memory."""
        return sum(asdict(self).values()) - self.data_on_disk

    def to_json(self) -> dict[str, int]:
        return {**asdict(self), "total": self.total}

    def __str__(self) -> str:
        names = ("weights", "gradients", "optimizer", "ema", "best", "activations", "data")
        sizes = {LONG_NAMES.get(name, name): getattr(self, name) for name in names}
        listed = ", ".join(f"{name} {format_bytes(size)}" for name, size in sizes.items() if size)
        on_disk = f"; {format_bytes(self.data_on_disk)} of data stay on disk" if self.data_on_disk else ""
        return f"about {format_bytes(self.total)} besides Python and torch ({listed}){on_disk}"


def profile_text_step(
    model: nn.Module, batches: Batches, objective: Objective, device: torch.device, precision: Any
) -> tuple[float, MemoryEstimate]:
    """Profile training steps of a text model."""
    report_activity("measuring a few training steps")
    make_step = partial(_text_step, objective, choose_dtype(precision, device))
    return profile_step(model, make_step, (batch for _, batch in batches.iter_from(DataCursor())), device)


def measure_threads(
    model: nn.Module, batches: Batches, objective: Objective, device: torch.device, precision: Any
) -> int | None:
    """The number of CPU threads that trains this model fastest; None on other devices."""
    if device.type != "cpu":
        return None
    with preserve_rng_states(device):
        _, step = _text_step(objective, choose_dtype(precision, device), copy.deepcopy(model).train())
        _, batch = next(iter(batches.iter_from(DataCursor())))
        step(batch)  # allocates memory and the optimizer's state
        return choose_threads(lambda: step(batch))


def _text_step(objective: Objective, dtype: torch.dtype, model: nn.Module) -> tuple[Optimizer, Step]:
    step = TrainStep(model, objective, build_optimizer(model, OptimizerConfig()), grad_clip=1.0, dtype=dtype)
    return step.optimizer, lambda batch: step.step([batch], BENCHMARK_LR)


def profile_step(
    model: nn.Module,
    make_step: Callable[[nn.Module], tuple[Optimizer, Step]],
    batches: Iterable[Any],
    device: torch.device,
) -> tuple[float, MemoryEstimate]:
    """Seconds of a typical step, and the memory of the largest. The steps run on a copy of the model.

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
    return seconds, MemoryEstimate(weights=weights, gradients=gradients, optimizer=state, activations=activations)


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


def format_bytes(size: float) -> str:
    """Bytes for people.

    >>> format_bytes(900), format_bytes(2_500_000), format_bytes(31e9)
    ('1 kB', '2.5 MB', '31.0 GB')
    """
    if size < 1e6:
        return f"{max(size / 1e3, 1):,.0f} kB"
    return f"{size / 1e6:,.1f} MB" if size < 1e9 else f"{size / 1e9:,.1f} GB"


def size_in_memory(values: Iterable[Any]) -> int:
    """Bytes of objects and everything they refer to. Of a long list, some items are measured and extrapolated.

    >>> import torch
    >>> size_in_memory([torch.zeros(1000)]) // 1000
    4
    """
    seen: set[int] = set()
    return round(sum(_size(value, seen) for value in values))


def _size(value: Any, seen: set[int]) -> float:
    if id(value) in seen or isinstance(value, NOT_COUNTED):
        return 0
    seen.add(id(value))
    buffer = _buffer(value)
    if buffer is not None:
        address, size = buffer
        is_new = address not in seen
        seen.add(address)
        return size if is_new else 0
    children = list(value) if isinstance(value, list | tuple) else gc.get_referents(value)
    if isinstance(value, list | tuple) and len(children) > SAMPLED_ITEMS:
        some = children[:: len(children) // SAMPLED_ITEMS]
        return sys.getsizeof(value) + sum(_size(child, seen) for child in some) * len(children) / len(some)
    return sys.getsizeof(value) + sum(_size(child, seen) for child in children)


def _buffer(value: Any) -> tuple[int, int] | None:
    """Address and bytes of a buffer; all views of it have the same address."""
    if isinstance(value, Tensor):
        return value.untyped_storage().data_ptr(), value.untyped_storage().nbytes()
    if isinstance(value, memoryview):
        return _buffer(value.obj) or (id(value.obj), value.nbytes)
    if isinstance(value, array):
        return value.buffer_info()[0], len(value) * value.itemsize
    return (id(value), len(value)) if isinstance(value, mmap.mmap) else None
