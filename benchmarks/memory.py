"""Peak memory of a call without its inputs, measured by torch."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.autograd.profiler import profile


def peak_bytes(call: Callable[[], object], device: str) -> int:
    """Run the call once. On the CPU, the profiler's allocation events are summed."""
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    recorder = profile(profile_memory=True)
    with suppress_stderr(), recorder:
        call()
    assert recorder.kineto_results is not None
    events: list[Any] = [event for event in recorder.kineto_results.events() if event.name() == "[memory]"]
    current = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        current += event.nbytes()
        peak = max(peak, current)
    return peak


def tensor_bytes(*tensors: torch.Tensor) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@contextmanager
def suppress_stderr() -> Iterator[None]:
    """Silence the process's standard error, to which the profiler writes when it starts and stops."""
    sys.stderr.flush()
    saved, devnull = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(devnull)
