"""Timing: interleaved rounds in shuffled order, medians and per-round ratios.

The order changes from round to round, so that no entry always runs after the same other one, whose data is still in
the cache or whose memory has just been released. A short call is made once untimed before each sample.

On a GPU, time is device time between two events, with a flushed cache and the host running ahead; `host_costs` measures
the host time per call.
"""

import gc
import math
import random
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

MIN_ROUNDS, MAX_ROUNDS = 5, 50
SLOW_RATIO, SLOW_ROUNDS = 3.0, 2
"""An entry this many times slower than the fastest runs only so many rounds."""
MIN_SAMPLE_SECONDS = 0.002
"""Minimum duration of a CPU sample; shorter calls are repeated."""
WARMUP_SECONDS = 0.05
"""Shorter calls are made once untimed before each sample."""


@dataclass(frozen=True)
class Entry:
    """A call and its context manager, which is entered outside of the timed part."""

    name: str
    call: Callable[[], object]
    context: Callable[[], AbstractContextManager[object]] = nullcontext
    informational: bool = False
    """Whether it is shown but cannot be the best baseline."""


Samples = list[float]
"""Seconds per call, one value per round."""


class Deadline:
    """When to stop starting new cases."""

    def __init__(self, minutes: float) -> None:
        self.start, self.minutes = time.monotonic(), minutes

    def passed(self) -> bool:
        return self.elapsed() > 60 * self.minutes

    def fraction(self, fraction: float) -> "Deadline":
        """Return a deadline with the same start and a fraction of the time."""
        earlier = Deadline(fraction * self.minutes)
        earlier.start = self.start
        return earlier

    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.start


class CpuTimer:
    """Wall time."""

    def once(self, entry: Entry) -> float:
        with entry.context():
            start = time.perf_counter()
            entry.call()
            return time.perf_counter() - start

    def sample(self, entry: Entry, estimate: float) -> float:
        repeats = max(1, math.ceil(MIN_SAMPLE_SECONDS / max(estimate, 1e-7)))
        with entry.context():
            if estimate < WARMUP_SECONDS:
                entry.call()
            start = time.perf_counter()
            for _ in range(repeats):
                entry.call()
            return (time.perf_counter() - start) / repeats


class CudaTimer:
    """Device time between two events, after a cache flush and a pause that lets the host run ahead."""

    FLUSH_BYTES = 1 << 28
    CYCLES_PER_SECOND = 1.8e9

    def __init__(self) -> None:
        self.flush = torch.empty(self.FLUSH_BYTES, dtype=torch.int8, device="cuda")
        self.host: dict[str, float] = {}
        """Seconds from call to return."""

    def once(self, entry: Entry) -> float:
        torch.cuda.synchronize()
        with entry.context():
            start = time.perf_counter()
            entry.call()
            self.host[entry.name] = time.perf_counter() - start
            torch.cuda.synchronize()
            return time.perf_counter() - start

    def sample(self, entry: Entry, estimate: float) -> float:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        self.flush.zero_()
        with entry.context():
            # Let the device sleep for longer than the host needs to launch everything.
            torch.cuda._sleep(int(min(1.5 * self.host[entry.name] + 5e-5, 0.003) * self.CYCLES_PER_SECOND))
            begin.record()
            entry.call()
            end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) / 1e3


Timer = CpuTimer | CudaTimer


def timer_for(device: str) -> Timer:
    return CudaTimer() if device == "cuda" else CpuTimer()


def time_interleaved(
    entries: Sequence[Entry], timer: Timer, budget: float, min_rounds: int = MIN_ROUNDS
) -> dict[str, Samples]:
    """Time all entries in rounds of shuffled order, within about `budget` seconds. All have been called before."""
    estimates = {entry.name: timer.once(entry) for entry in entries}
    fastest = min(estimates.values())
    slow = {name for name, seconds in estimates.items() if seconds > SLOW_RATIO * fastest}
    cost = {
        name: max(2 * seconds if seconds < WARMUP_SECONDS else seconds, MIN_SAMPLE_SECONDS)
        for name, seconds in estimates.items()
    }
    remaining = budget - SLOW_ROUNDS * sum(cost[name] for name in slow)
    rounds = int(remaining / sum(cost[name] for name in cost if name not in slow))
    rounds = max(min_rounds, min(MAX_ROUNDS, rounds))
    rng = random.Random(0)
    # The estimate of a long call is a sample; on a GPU the estimate is wall time, the samples device time.
    has_sample = isinstance(timer, CpuTimer) and fastest > WARMUP_SECONDS
    samples: dict[str, Samples] = {name: [seconds] if has_sample else [] for name, seconds in estimates.items()}
    gc.collect()
    gc.disable()
    try:
        for number in range(int(has_sample), rounds):
            for entry in rng.sample(entries, len(entries)):
                if number < SLOW_ROUNDS or entry.name not in slow:
                    samples[entry.name].append(timer.sample(entry, estimates[entry.name]))
    finally:
        gc.enable()
    return samples


def median(samples: Samples) -> float:
    return statistics.median(samples)


def ratio_noise(numerators: Samples, denominators: Samples) -> float:
    """Half the interquartile range of the per-round ratio."""
    ratios = [one / other for one, other in zip(numerators, denominators, strict=False)]
    if len(ratios) < 2:
        return math.nan
    low, _, high = statistics.quantiles(ratios, n=4)
    return (high - low) / 2


def geometric_mean(numbers: Iterable[float]) -> float:
    logs = [math.log(number) for number in numbers]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan
