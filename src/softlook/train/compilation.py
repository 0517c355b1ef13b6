"""Compilation of a training step: forward, loss and backward as one graph per shape of a batch."""

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any, Literal

import torch
from torch import Tensor, nn

from softlook.base.tensors import map_tensors

CompileMode = bool | Literal["auto"]
MIN_STEPS, MIN_SECONDS = 500, 300.0
"""A shorter run would be over before a compiled step has saved the time of its compilation."""
MAX_SHAPES = 8
"""Shapes of batches that are compiled, each on its own; batches of further shapes run eagerly."""
WARMUP_CALLS, MIN_SHAPE_SHARE = 16, 0.2
"""Batches after which automatic compilation begins, and the share of all batches that a shape needs to be worth it."""
Sums = tuple[Tensor, int | Tensor, Tensor | None]
"""The fields of a `Loss`."""


class LossCompiler:
    """Computes a loss through torch.compile, and eagerly where that is not possible.

    All sizes are static: kernels are the fastest, and a batch of a new shape compiles a new graph. With `warmup_calls`,
    only common shapes are compiled, after so many batches: padded batches can have hundreds of shapes. `reason` says
    why nothing is compiled.

    >>> compiler = LossCompiler(lambda model, batch: (model(batch).sum(), 1, None), backend="eager")
    >>> model = nn.Linear(2, 3)
    >>> for rows in (4, 4, 5):
    ...     _ = compiler(model, torch.randn(rows, 2))
    >>> compiler.graphs, len(compiler.shapes)
    (2, 2)
    """

    def __init__(
        self, loss: Callable[[nn.Module, Any], Sums], *, backend: str = "inductor", warmup_calls: int = 0
    ) -> None:
        self.loss, self.backend, self.warmup_calls = loss, backend, warmup_calls
        self.shapes: set[tuple[Any, ...]] = set()
        self.calls: Counter[tuple[Any, ...]] = Counter()
        self.graphs, self.eager_calls, self.seconds = 0, 0, 0.0
        self.reason: str | None = None
        # torch keeps compiled graphs with the code of a function: a copy of it has its own.
        code = _call.__code__.replace(co_name="training_step")
        own: Any = FunctionType(code, _call.__globals__)
        self.compiled = torch.compile(own, fullgraph=True, dynamic=False, backend=partial(_count, self))

    def __call__(self, model: nn.Module, batch: Any) -> Sums:
        shape = batch_shape(batch)
        self.calls[shape] += 1
        if self.reason is not None or not self._is_compiled(shape):
            self.eager_calls += 1
            return self.loss(model, batch)
        is_new, started = shape not in self.shapes, time.monotonic()
        self.shapes.add(shape)
        sums = self.compiled(self.loss, model, batch)
        self.seconds += time.monotonic() - started if is_new else 0.0
        return sums

    def _is_compiled(self, shape: tuple[Any, ...]) -> bool:
        """Whether batches of this shape are compiled."""
        if shape in self.shapes or len(self.shapes) == MAX_SHAPES:
            return shape in self.shapes
        total, min_share = self.calls.total(), MIN_SHAPE_SHARE if self.warmup_calls else 0.0
        return total > self.warmup_calls and self.calls[shape] >= min_share * total

    def disable(self, error: BaseException) -> str:
        """Run eagerly from now on, because of an error; returns the reason."""
        text = " ".join(str(error).split())
        self.reason = f"torch.compile failed with {type(error).__name__}: {text:.300}"
        return self.reason

    def __str__(self) -> str:
        if self.reason is not None:
            return f"eager: {self.reason}"
        text = f"compiled by {self.backend}, one graph for each shape of a batch"
        if not self.graphs:
            return text
        text = f"compiled by {self.backend}: {self.graphs} graphs for {len(self.shapes)} shapes of batches"
        eager = f"; {self.eager_calls} batches, of rare shapes or at the start, ran eagerly" if self.eager_calls else ""
        return f"{text}, {self.seconds:.0f} s of compilation{eager}"


def _call(loss: Callable[[nn.Module, Any], Sums], model: nn.Module, batch: Any) -> Sums:
    return loss(model, batch)


def _count(compiler: LossCompiler, graph: Any, inputs: Any, **options: Any) -> Any:
    """Compile a graph, and count it."""
    compiler.graphs += 1
    return torch._dynamo.lookup_backend(compiler.backend)(graph, inputs, **options)  # pyright: ignore


def batch_shape(batch: Any) -> tuple[Any, ...]:
    """What a graph depends on: the type of a batch, and the shapes and dtypes of its tensors.

    >>> batch_shape([torch.zeros(2, 3)])
    (<class 'list'>, (torch.Size([2, 3]), torch.float32))
    """
    found: list[Any] = [type(batch)]
    map_tensors(batch, lambda tensor: found.append((tensor.shape, tensor.dtype)) or tensor)
    return tuple(found)


def reason_not_to_compile(
    mode: CompileMode, device: torch.device, *, is_distributed: bool, steps: int | None, seconds: float | None
) -> str | None:
    """Why a run is not compiled; None if it is. `steps` and `seconds` are its limits.

    >>> gpu = torch.device("cuda")
    >>> reason_not_to_compile("auto", gpu, is_distributed=False, steps=10, seconds=None)
    'a run of 10 steps is over before compilation pays; compile=True compiles it'
    >>> reason_not_to_compile("auto", gpu, is_distributed=False, steps=10_000, seconds=None)
    """
    if mode is False:
        return "compile=False"
    if is_distributed:
        return "with several processes, DDP and FSDP hook into the eager backward pass"
    if mode is True:
        return None
    if device.type != "cuda":
        return f"compile='auto' compiles on CUDA devices only, and this is {device}"
    if steps is not None and steps < MIN_STEPS:
        return f"a run of {steps} steps is over before compilation pays; compile=True compiles it"
    if seconds is not None and seconds < MIN_SECONDS:
        return f"a run of {seconds:.0f} seconds is over before compilation pays; compile=True compiles it"
    return None
