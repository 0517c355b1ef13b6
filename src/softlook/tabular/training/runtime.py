"""Thread count, random state and timing of a fit."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any

import torch
from sklearn.utils import check_random_state

RNG_LOCK = RLock()
"""torch has one global random state per process: a fit holds this lock, so that threads do not mix theirs."""


@contextmanager
def limit_threads(n_jobs: int | None) -> Iterator[None]:
    """Set torch's number of CPU threads; None keeps it, -1 means all cores."""
    before = torch.get_num_threads()
    if n_jobs is not None:
        torch.set_num_threads(int(n_jobs) if n_jobs > 0 else max(1, (os.cpu_count() or 1) + 1 + int(n_jobs)))
    try:
        yield
    finally:
        if n_jobs is not None:
            torch.set_num_threads(before)


@contextmanager
def forked_rng(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's global random state inside the context; restore it afterwards."""
    devices = [device] if device.type == "cuda" else []
    with RNG_LOCK, torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


def seed_from_random_state(random_state: Any) -> int:
    """An integer seed from scikit-learn's `random_state`: None, an integer or a RandomState.

    >>> seed_from_random_state(0) == seed_from_random_state(0)
    True
    """
    return int(check_random_state(random_state).randint(2**31 - 1))


def best_time(work: Callable[[], object], repeats: int = 2) -> float:
    """Seconds of the fastest repeat; the first one is also the warmup.

    >>> best_time(lambda: sum(range(1000))) < 1
    True
    """
    seconds = list[float]()
    for _ in range(repeats):
        started = time.monotonic()
        work()
        seconds.append(time.monotonic() - started)
    return min(seconds)
