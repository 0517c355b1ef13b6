"""E. `attention` compared with torch's CUDA kernels; host overhead, biases and look."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from torch.nn.attention import sdpa_kernel
from torch.profiler import ProfilerActivity, profile

from benchmarks import bias_costs, host_costs, look_costs
from benchmarks.cases import Case, Inputs, make_inputs
from benchmarks.comparison import short_message
from benchmarks.implementations import (
    CUDA_BACKENDS,
    SOFTLOOK,
    compiled_flex,
    eager,
    flash_window,
    forced_backends,
    fused,
    softlook_entry,
)
from benchmarks.memory import suppress_stderr
from benchmarks.report import Report
from benchmarks.sweep import HOW_TO_READ, Sweep
from benchmarks.timing import Deadline, Entry, timer_for

TOKENS, WIDTH = 16384, 2048
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
FLEX_LENGTHS = (2048,)
"""Compiling takes seconds for each shape: flex runs at these lengths, and in cases where it may be the fastest."""
COLUMNS = ("sdpa", "cudnn", "flash", "efficient", "flex")
BF16 = torch.bfloat16


def grid() -> list[Case]:
    """B x N = 16k tokens, H x D = 2048."""
    return [
        Case("grid", (TOKENS // length, WIDTH // width, length, length, width), mask, BF16, backward)
        for backward in (False, True)
        for width in (64, 128)
        for mask in ("causal", "full")
        for length in LENGTHS
    ]


def special() -> list[Case]:
    """Other common shapes and masks."""
    short = [
        Case("short", (4096, 8, length, length, width), dtype=BF16)
        for width in (32, 64)
        for length in (16, 32, 64, 128)
    ]
    decode = [
        Case("decode", (1, 16, 1, 4096, 128), "causal", BF16),
        Case("decode", (64, 16, 1, 4096, 128), "causal", BF16),
        Case("decode, GQA", (1, 32, 1, 4096, 128), "causal", BF16, kv_heads=8),
        Case("decode, GQA", (64, 32, 1, 4096, 128), "causal", BF16, kv_heads=8),
        Case("decode, padded", (64, 16, 1, 4096, 128), "padding", BF16),
        Case("chunk", (1, 16, 512, 8192, 128), "causal", BF16),
    ]
    both = [
        Case("GQA", (4, 32, 4096, 4096, 128), "causal", BF16, kv_heads=8),
        Case("padded", (16, 16, 1024, 1024, 64), "padding", BF16),
        Case("window", (2, 16, 8192, 8192, 64), "window", BF16, window=512),
        Case("float32", (8, 16, 2048, 2048, 64), "causal"),
        Case("head_dim 80", (8, 16, 2048, 2048, 80), "causal", BF16),
    ]
    dropout = [Case("dropout", (8, 16, 2048, 2048, 64), mask, BF16, True, dropout=0.1) for mask in ("causal", "full")]
    backward = [replace(case, backward=True) for case in (*short[2:3], *short[4:], *both)]
    return short + decode + both + backward + dropout


def make_entries(case: Case, inputs: Inputs) -> Sequence[Entry]:
    """All kernels; flex if it is worth its compile time, dense attention if the map is small."""
    _, _, T, S, D = case.shape
    entries = [softlook_entry(case, inputs), *fused(case, inputs), *forced_backends(case, inputs)]
    if case.name == "window" or (case.name == "grid" and S in FLEX_LENGTHS and D == 64):
        entries.append(compiled_flex(case, inputs))
    if case.mask == "window":
        entries.append(flash_window(case, inputs))
    if case.shape[0] * case.shape[1] * T * S <= 1 << 28:
        entries.append(eager(case, inputs))
    return entries


def measure(report: Report, deadline: Deadline, parts: set[str], dry: bool, quick: bool) -> None:
    """All benchmarks of the GPU. `dry` runs them on the CPU with tiny sizes, to test the scripts."""
    device, short = "cpu" if dry else "cuda", dry or quick
    if "H" in parts:
        host_costs.overhead(report, device, short)
        host_costs.first_calls(report, device, dry)
    if "E" in parts:
        _dispatch(report, device, deadline.fraction(0.6), dry, quick)
    if "G" in parts:
        bias_costs.measure(report, device, deadline, short, dry)
    if "F" in parts:
        look_costs.measure(report, device, deadline, quick, dry)
    report.text(f"Measured in {deadline.elapsed() / 60:.1f} minutes.")


def _dispatch(report: Report, device: str, deadline: Deadline, dry: bool, quick: bool) -> None:
    report.section("E. attention on the GPU", HOW_TO_READ, "Times are device times; for host times see H.")
    _kernels(report, device, dry)
    sweep = Sweep(report, make_entries, COLUMNS, timer_for(device), deadline)
    for cases, step in ((special(), 5 if quick else 1), (grid(), 5 if quick or dry else 1)):
        cases = [replace(case, device=device) for case in cases[::step]]
        sweep.run([_tiny(case) for case in cases] if dry else cases, budget=0.05 if dry else 0.4)
    sweep.conclude("attention on the GPU")


def _tiny(case: Case) -> Case:
    B, H, T, S, D = case.shape
    small = (
        min(B, 2),
        H if case.kv_heads else min(H, 2),
        *(min(n, 64 if T == S else max(n // 128, 1)) for n in (T, S)),
        D,
    )
    return replace(case, shape=small, window=min(case.window, 16))


def _kernels(report: Report, device: str, dry: bool) -> None:
    """The names of the kernels that actually run."""
    case = Case("kernels", (4, 16, 1024, 1024, 64), "causal", BF16, device=device)
    case = _tiny(case) if dry else case
    inputs = make_inputs(case)
    table = report.table("requested", "slowest kernel")
    contexts = {"sdpa, default": None, SOFTLOOK: None} | {
        name: partial(sdpa_kernel, backend) for name, backend in CUDA_BACKENDS.items()
    }
    for name, context in contexts.items():
        entry = softlook_entry(case, inputs) if name == SOFTLOOK else fused(case, inputs)[0]
        table.add(name, _slowest_kernel(replace(entry, context=context) if context else entry, device))


def _slowest_kernel(entry: Entry, device: str) -> str:
    activity = ProfilerActivity.CUDA if device == "cuda" else ProfilerActivity.CPU
    try:
        with entry.context():
            entry.call()
            with suppress_stderr(), profile(activities=[activity]) as profiler:
                entry.call()
                if device == "cuda":
                    torch.cuda.synchronize()
        time = "self_device_time_total" if device == "cuda" else "self_cpu_time_total"
        events = [event for event in profiler.key_averages() if getattr(event, time) > 0]
        return max(events, key=lambda event: getattr(event, time)).key[:90] if events else "–"
    except Exception as error:
        return short_message(error)
