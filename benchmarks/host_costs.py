"""H. Host overhead: microseconds per call on tiny tensors, and the first call of a new shape."""

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch.nn.attention import sdpa_kernel

from benchmarks.cases import Case, make_inputs
from benchmarks.comparison import short_message
from benchmarks.implementations import CUDA_BACKENDS, fused, softlook_entry
from benchmarks.report import Report, ms
from benchmarks.timing import Entry

SMALL = (
    Case("plain", (1, 4, 16, 16, 64)),
    Case("causal", (1, 4, 16, 16, 64), "causal"),
    Case("causal, one query", (1, 4, 1, 1, 64), "causal"),
    Case("padding", (1, 4, 16, 16, 64), "padding"),
    Case("causal and padding", (1, 4, 16, 16, 64), "causal and padding"),
    Case("causal and padding, one query", (1, 4, 1, 1, 64), "causal and padding"),
    Case("window", (1, 4, 16, 16, 64), "window", window=8),
    Case("chunk", (1, 4, 8, 16, 64), "causal"),
    Case("GQA", (1, 4, 16, 16, 64), kv_heads=2),
    Case("plain, with gradient", (1, 4, 16, 16, 64), backward=True),
)
LENGTHS = (1001, 1131, 1263, 1397)
"""Lengths that no other script uses."""


def overhead(report: Report, device: str, quick: bool) -> None:
    """Wall time per call without synchronization."""
    report.section(
        "H. host time per call",
        "Microseconds from call to return on tiny tensors, without synchronization; medians of interleaved batches.",
    )
    table = report.table("call", "softlook", "sdpa", "difference")
    for case in SMALL:
        case = replace(case, device=device, dtype=torch.bfloat16 if device == "cuda" else torch.float32)
        inputs = make_inputs(case)
        pair = [softlook_entry(case, inputs), fused(case, inputs)[0]]
        try:
            softlook_us, sdpa_us = _microseconds(pair, device, batches=5 if quick else 15)
            table.add(case.name, softlook_us, sdpa_us, softlook_us - sdpa_us)
        except Exception as error:
            table.add(case.name, short_message(error), None, None)


def _microseconds(entries: list[Entry], device: str, batches: int, calls: int = 50) -> list[float]:
    times: dict[str, list[float]] = {entry.name: [] for entry in entries}
    for batch in range(batches + 1):
        for entry in entries:
            _synchronize(device)
            start = time.perf_counter()
            for _ in range(calls):
                entry.call()
            if batch:  # the first one is a warm-up
                times[entry.name].append((time.perf_counter() - start) / calls * 1e6)
            _synchronize(device)
    return [statistics.median(times[entry.name]) for entry in entries]


def first_calls(report: Report, device: str, dry: bool) -> None:
    """Time of the first call of a new length per kernel, and of the second one for comparison."""
    report.text("The first and the second call with a new length, in milliseconds of wall time.")
    table = report.table("kernel", "pass", "lengths", "first, median", "first, max", "second, median")
    lengths = tuple(length // 16 for length in LENGTHS) if dry else LENGTHS
    for backward in (False, True):
        for index, name in enumerate(("cudnn", "flash", "efficient", "sdpa", "softlook")):
            new = [length + index + 8 * backward for length in lengths]  # lengths that no other row has used
            firsts, seconds, failure = _first_call_times(name, device, new, backward)
            cells = (name, "fwd+bwd" if backward else "fwd", len(firsts))
            if failure or not firsts:
                table.add(*cells, failure, None, None)
            else:
                medians = [ms(statistics.median(times)) for times in (firsts, seconds)]
                table.add(*cells, medians[0], ms(max(firsts)), medians[1])


def _first_call_times(
    name: str, device: str, lengths: list[int], backward: bool
) -> tuple[list[float], list[float], str | None]:
    """Seconds of the first and of the second call with each length, and the error message of a failure."""
    firsts, seconds = [], []
    # One call beforehand, at another length: library loading is not measured.
    for number, length in enumerate([lengths[-1] + 320, *lengths]):
        case = Case(name, (2, 8, length, length, 64), "causal", torch.bfloat16, backward, device=device)
        try:
            call, context = _call_and_context(name, case)
            with context():
                times = [_wall_seconds(call, device) for _ in range(2)]
        except Exception as error:
            return firsts, seconds, short_message(error)
        if number:
            firsts.append(times[0])
            seconds.append(times[1])
    return firsts, seconds, None


def _call_and_context(name: str, case: Case) -> tuple[Callable[[], object], Callable]:
    inputs = make_inputs(case)
    if name == "softlook":
        entry = softlook_entry(case, inputs)
        return entry.call, entry.context
    entry = fused(case, inputs)[0]
    return entry.call, partial(sdpa_kernel, CUDA_BACKENDS[name]) if name in CUDA_BACKENDS else entry.context


def _wall_seconds(call: Callable[[], object], device: str) -> float:
    _synchronize(device)
    start = time.perf_counter()
    call()
    _synchronize(device)
    return time.perf_counter() - start


def _synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
