"""The number of CPU threads that trains fastest on this machine now."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

ENVIRONMENT = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TORCH_NUM_THREADS")
ROUNDS, MAX_SECONDS = 5, 3.0
"""Limits of a measurement."""
MIN_GAIN = 0.05
"""The share of time that one thread must save: all threads are the default."""


def choose_threads(step: Callable[[], object], *, threads: int | None = None) -> int:
    """Compare one thread with all of them on training steps, in turns.

    Several threads wait for each other at every operation: on a busy machine, or with a small model, one is faster. A
    number of threads that is set in the environment is kept.
    """
    threads = threads or torch.get_num_threads()
    if threads == 1 or any(name in os.environ for name in ENVIRONMENT):
        return threads
    seconds = {1: 0.0, threads: 0.0}
    began = time.monotonic()
    for _ in range(ROUNDS):
        for count in seconds:
            with use_threads(count):
                start = time.monotonic()
                step()
                seconds[count] += time.monotonic() - start
        if time.monotonic() - began > MAX_SECONDS:
            break
    return 1 if seconds[1] < (1 - MIN_GAIN) * seconds[threads] else threads


@contextmanager
def use_threads(count: int | None) -> Iterator[None]:
    """Compute with so many threads inside; None changes nothing."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
