"""A run of `fit` that is measured from a callback: its data, blocks of steps, profile and results."""

import json
import logging
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from benchmarks.timing import Deadline
from softlook.models import GPT, GPTConfig
from softlook.train import Loss, OptimizerConfig, StopTraining, TrainingConfig, fit, objectives
from softlook.train.events import Event, StepLogged
from softlook.train.train_step import TrainStep

CLASSES, DIM, HEADS, DEPTH, CONTEXT = 50257, 768, 12, 12, 1024
FLOP_PER_TOKEN = 6 * 123.65e6 + 6 * DEPTH * DIM * CONTEXT
"""Of weights and causal attention, forward and backward."""
PEAK = 989e12
BLOCK = 10
"""Steps of a block."""
WARMUP = 50
"""Steps before blocks are measured, whose losses are compared with eager ones."""
POOL = 32
"""Batches, used again and again."""
OPTIM = OptimizerConfig(lr=6e-4, schedule="constant", warmup=40, weight_decay=0.1, beta2=0.95)


@dataclass(frozen=True)
class Batch:
    """Rows of one document each."""

    ids: Tensor
    labels: Tensor


def objective(model: Any, batch: Batch) -> Loss:
    return objectives.lm_cross_entropy_sum(model, batch.ids, batch.labels)


def make_batches(rows: int, lengths: Sequence[int], count: int = POOL) -> list[Batch]:
    """Text that can be learned: each id follows from the one before, with noise."""
    generator = torch.Generator().manual_seed(0)
    follow = torch.randint(CLASSES, (CLASSES,), generator=generator)
    batches = []
    for number in range(count):
        length = lengths[number % len(lengths)]
        width = rows * lengths[0] // length
        ids = torch.empty(width, length + 1, dtype=torch.long)
        ids[:, 0] = torch.randint(CLASSES, (width,), generator=generator)
        noise = torch.rand(width, length, generator=generator) < 0.3
        random = (CLASSES * torch.rand(width, length, generator=generator) ** 3).long()
        for t in range(length):
            ids[:, t + 1] = torch.where(noise[:, t], random[:, t], follow[ids[:, t]] % 997)
        batches.append(Batch(ids[:, :-1].contiguous(), ids[:, 1:].contiguous()))
    return batches


def make_model(depth: int = DEPTH, context: int = CONTEXT) -> GPT:
    torch.manual_seed(1)
    sizes: dict[str, Any] = {"vocab_size": CLASSES, "context": context, "dim": DIM, "depth": depth, "heads": HEADS}
    return GPT(GPTConfig(**sizes, activation="gelu_tanh", dropout=0.0))


@dataclass
class Run:
    """A run of `fit` that is measured from a callback, which every logged step calls."""

    blocks: int
    warmup: int = WARMUP
    between: Callable[[], None] = lambda: None
    """Runs after each block, untimed."""
    last: Callable[[], AbstractContextManager[None]] | None = None
    """Context of one more block at the end, such as a profiler."""
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    steps: int = 0
    _started: float = 0.0
    _stack: ExitStack = field(default_factory=ExitStack)

    def __call__(self, event: Event) -> None:
        if not isinstance(event, StepLogged):
            return
        self.steps += 1
        self.losses.append(event.loss)
        done, rest = divmod(self.steps - self.warmup, BLOCK)
        if self.steps < self.warmup or rest:
            return
        torch.cuda.synchronize()
        if 0 < done <= self.blocks:
            self.seconds.append((time.perf_counter() - self._started) / BLOCK)
        if done < self.blocks:
            self.between()
        elif self.last is not None and done == self.blocks:
            self._stack.enter_context(self.last())
        else:
            self._stack.close()
            raise StopTraining
        torch.cuda.synchronize()
        self._started = time.perf_counter()


def train(model: GPT, batches: Sequence[Any], run: Run, loss: Callable[..., Loss] = objective, **settings: Any) -> str:
    """Run `fit` until `run` stops it; returns what it logs about its step."""
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # pyright: ignore[reportAttributeAccessIssue]
    logger = logging.getLogger("softlook.train")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    torch.cuda.reset_peak_memory_stats()
    training = TrainingConfig(max_steps=100_000, log_every=1, device="cuda", **settings)
    try:
        fit(model, batches, loss, training=training, optim=OPTIM, callbacks=[run], progress=False)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    return " | ".join(messages)


class HostTime:
    """Seconds that the host takes to launch each step."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    @contextmanager
    def measure(self) -> Iterator[None]:
        launch = TrainStep.launch

        def timed(step: TrainStep, *arguments: Any) -> Any:
            begin = time.perf_counter()
            pending = launch(step, *arguments)
            self.seconds.append(time.perf_counter() - begin)
            return pending

        with mock.patch.object(TrainStep, "launch", timed):
            yield


class Results:
    """Results, printed as they come and written as JSON."""

    def __init__(self, deadline: Deadline, out: str) -> None:
        self.deadline, self.out, self.values = deadline, out, dict[str, Any]()
        self.losses: dict[str, list[float]] = {}

    def add(self, name: str, value: Any) -> None:
        self.values[name] = value
        shown = value
        if isinstance(value, float):
            shown = f"{value:,.0f}" if value >= 1e4 else f"{value:.4g}"
        print(f"{self.deadline.elapsed():6.1f}s  {name}: {shown}", flush=True)
        if self.out:
            content = {"results": self.values, "losses": self.losses}
            (Path(self.out) / "training_step.json").write_text(json.dumps(content, indent=1, default=str))

    @contextmanager
    def guard(self, name: str) -> Iterator[None]:
        """Report an error and go on."""
        try:
            yield
        except Exception as error:
            traceback.print_exc(file=sys.stdout)
            self.add(f"FAILED {name}", f"{type(error).__name__}: {error!s:.500}")


@contextmanager
def profile(report: "Results", out: str) -> Iterator[None]:
    """Kernels of a block of steps: a table in the results, and all of them in a file."""
    activities = [torch.profiler.ProfilerActivity.CUDA] if torch.cuda.is_available() else None
    profiler = torch.profiler.profile(activities=activities)
    with report.guard("profile"):
        profiler.start()
    yield
    with report.guard("profile"):
        torch.cuda.synchronize()
        profiler.stop()
        events = profiler.key_averages()
        rows = [one for one in events if str(one.device_type).endswith("CUDA") and "#" not in one.key]
        rows.sort(key=lambda one: -one.self_device_time_total)
        total = sum(one.self_device_time_total for one in rows)
        lines = [
            f"{one.self_device_time_total / BLOCK / 1e3:9.3f} ms {one.count / BLOCK:7.1f} calls  {one.key:.110}"
            for one in rows
        ]
        lines.insert(0, f"{total / BLOCK / 1e3:9.3f} ms of kernels in a step")
        if out:
            (Path(out) / "kernels.txt").write_text("\n".join(lines))
        print("\n".join(lines[:27]), flush=True)
