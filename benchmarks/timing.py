"""Timing: interleaved rounds in shuffled order, medians and per-round ratios.

The order changes from round to round, so that nobody always runs in the wake of the same other one, whose data
are still in the cache or whose memory has just been given back. A short call is made once untimed before each sample.

On a GPU the time is the device's own, between two events, with the cache flushed and the host well ahead:
what the host needs per call is measured on its own, in `host_costs`.
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

LEAST, MOST = 5, 50
"""Minimum and maximum rounds."""
SLOW = 3.0
"""An entry this many times slower than the fastest runs fewer rounds."""
FEW = 2
"""Rounds of a slow entry."""
SAMPLE = 0.002
"""Duration of a CPU sample in seconds; shorter calls are repeated."""

SHORT = 0.05
"""Seconds of a call that is made once untimed before each sample."""


@dataclass(frozen=True)
class Entry:
    """A call and its context manager, which is entered outside of the timed part."""

    name: str
    call: Callable[[], object]
    context: Callable[[], AbstractContextManager[object]] = nullcontext
    counts: bool = True
    """Whether it counts for the best peer; others are informative."""


Samples = list[float]
"""Seconds per call, one value per round."""


class Deadline:
    """When to stop starting new cases."""

    def __init__(self, minutes: float) -> None:
        self.start, self.minutes = time.monotonic(), minutes

    def passed(self) -> bool:
        return self.spent() > 60 * self.minutes

    def share(self, part: float) -> "Deadline":
        """Return a deadline with the same start that ends earlier."""
        earlier = Deadline(part * self.minutes)
        earlier.start = self.start
        return earlier

    def spent(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.start


class CpuWatch:
    """Wall time."""

    def once(self, entry: Entry) -> float:
        with entry.context():
            start = time.perf_counter()
            entry.call()
            return time.perf_counter() - start

    def sample(self, entry: Entry, estimate: float) -> float:
        repeats = max(1, math.ceil(SAMPLE / max(estimate, 1e-7)))
        with entry.context():
            if estimate < SHORT:
                entry.call()
            start = time.perf_counter()
            for _ in range(repeats):
                entry.call()
            return (time.perf_counter() - start) / repeats


class CudaWatch:
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


Watch = CpuWatch | CudaWatch


def watch_for(device: str) -> Watch:
    return CudaWatch() if device == "cuda" else CpuWatch()


def race(entries: Sequence[Entry], watch: Watch, budget: float, least: int = LEAST) -> dict[str, Samples]:
    """Time all entries, each called before, in rounds of shuffled order, within about `budget` seconds."""
    estimates = {entry.name: watch.once(entry) for entry in entries}
    fastest = min(estimates.values())
    slow = {name for name, seconds in estimates.items() if seconds > SLOW * fastest}
    cost = {name: max(2 * seconds if seconds < SHORT else seconds, SAMPLE) for name, seconds in estimates.items()}
    left = budget - FEW * sum(cost[name] for name in slow)
    rounds = int(left / sum(cost[name] for name in cost if name not in slow))
    rounds = max(least, min(MOST, rounds))
    order = random.Random(0)
    # A call that is long enough has been timed once already; a GPU's clock is another one.
    long = isinstance(watch, CpuWatch) and fastest > SHORT
    samples: dict[str, Samples] = {name: [seconds] if long else [] for name, seconds in estimates.items()}
    gc.collect()
    gc.disable()
    try:
        for number in range(int(long), rounds):
            for entry in order.sample(entries, len(entries)):
                if number < FEW or entry.name not in slow:
                    samples[entry.name].append(watch.sample(entry, estimates[entry.name]))
    finally:
        gc.enable()
    return samples


def median(samples: Samples) -> float:
    return statistics.median(samples)


def ratio_noise(above: Samples, below: Samples) -> float:
    """Half the interquartile range of the per-round ratio: the noise level."""
    ratios = [one / other for one, other in zip(above, below, strict=False)]
    if len(ratios) < 2:
        return math.nan
    low, _, high = statistics.quantiles(ratios, n=4)
    return (high - low) / 2


def geometric_mean(numbers: Iterable[float]) -> float:
    logs = [math.log(number) for number in numbers]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan
