"""Runtime of a fit: threads, random state, time limit and progress line."""

import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import RLock
from typing import Any, TextIO

import torch
from sklearn.utils import check_random_state

Epoch = dict[str, Any]
"""Metrics of an epoch: its number, training loss, validation loss and score, is_best and seconds."""
EpochCallback = Callable[[Epoch], None]
MAX_RESERVED_FRACTION = 0.5
"""Fraction of the time limit that may be reserved for what follows the last step."""
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


@dataclass(frozen=True)
class TimeBudget:
    """A time limit."""

    seconds: float | None = None
    started: float = 0.0

    def elapsed_fraction(self) -> float:
        """Elapsed time as a fraction of the limit."""
        return 0.0 if self.seconds is None else (time.monotonic() - self.started) / self.seconds

    def is_exhausted(self, reserved: float = 0.0) -> bool:
        """Whether the time is up, with `reserved` seconds kept for what follows."""
        return self.seconds is not None and self.elapsed_fraction() + reserved / self.seconds >= 1

    def max_reserved(self) -> float:
        """Seconds that may be reserved for what follows the last step; never more than are left."""
        if self.seconds is None:
            return math.inf
        return self.seconds * max(0.0, min(MAX_RESERVED_FRACTION, 1 - self.elapsed_fraction()))


@contextmanager
def progress_printer(verbose: int | bool, file: TextIO | None = None) -> Iterator[EpochCallback]:
    """A callback that prints each epoch: one line that is overwritten on a terminal, otherwise one line each.

    >>> with progress_printer(True, sys.stdout) as callback:
    ...     callback({"epoch": 3, "loss": 0.51234, "val_loss": 0.6, "is_best": True, "seconds": 1.25})
    epoch 3: loss 0.5123, val_loss 0.6000, best so far (1.2 s)
    """
    out = file or sys.stderr
    best: list[Epoch] = []
    is_open = False

    def print_epoch(epoch: Epoch) -> None:
        nonlocal is_open
        if epoch.get("is_best"):
            best[:] = [epoch]
        is_open = out.isatty()
        out.write(f"\r\x1b[2K{_line(epoch, best)}" if is_open else f"{_line(epoch, best)}\n")
        out.flush()

    try:
        yield print_epoch if verbose else lambda epoch: None
    finally:
        if is_open:
            out.write("\n")


def _line(epoch: Epoch, best: list[Epoch]) -> str:
    parts = [f"loss {epoch['loss']:.4f}"]
    if "val_loss" in epoch:
        parts.append(f"val_loss {epoch['val_loss']:.4f}")
        if epoch["is_best"]:
            parts.append("best so far")
        elif best:
            parts.append(f"best {best[0]['val_loss']:.4f} in epoch {best[0]['epoch']}")
    return f"epoch {epoch['epoch']}: {', '.join(parts)} ({epoch['seconds']:.1f} s)"
