"""E. `attention` compared with torch's CUDA kernels; host overhead, biases and look."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from torch.nn.attention import sdpa_kernel
from torch.profiler import ProfilerActivity, profile

from benchmarks import bias_costs, host_costs, look_costs
from benchmarks.cases import Case, Inputs, make_inputs
from benchmarks.contest import why
from benchmarks.memory import hushed
from benchmarks.peers import FORCED, SOFTLOOK, compiled_flex, eager, flash_window, forced, fused, softlook_entry
from benchmarks.report import Report
from benchmarks.sweep import HOW_TO_READ, Sweep
from benchmarks.timing import Deadline, Entry, watch_for

TOKENS, WIDTH = 16384, 2048
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
FLEX_LENGTHS = (2048,)
"""Compiling takes seconds for each shape: flex runs at these lengths, and where it may well be the fastest."""
COLUMNS = ("sdpa", "cudnn", "flash", "efficient", "flex")
HALF = torch.bfloat16


def grid() -> list[Case]:
    """B x N = 16k tokens, H x D = 2048."""
    return [
        Case("grid", (TOKENS // length, WIDTH // width, length, length, width), mask, HALF, backward)
        for backward in (False, True)
        for width in (64, 128)
        for mask in ("causal", "full")
        for length in LENGTHS
    ]


def special() -> list[Case]:
    """What people do beside it."""
    short = [
        Case("short", (4096, 8, length, length, width), dtype=HALF)
        for width in (32, 64)
        for length in (16, 32, 64, 128)
    ]
    decode = [
        Case("decode", (1, 16, 1, 4096, 128), "causal", HALF),
        Case("decode", (64, 16, 1, 4096, 128), "causal", HALF),
        Case("decode, shared keys", (1, 32, 1, 4096, 128), "causal", HALF, kv_heads=8),
        Case("decode, shared keys", (64, 32, 1, 4096, 128), "causal", HALF, kv_heads=8),
        Case("decode, padded", (64, 16, 1, 4096, 128), "padding", HALF),
        Case("chunk", (1, 16, 512, 8192, 128), "causal", HALF),
    ]
    both = [
        Case("shared keys", (4, 32, 4096, 4096, 128), "causal", HALF, kv_heads=8),
        Case("padded", (16, 16, 1024, 1024, 64), "padding", HALF),
        Case("window", (2, 16, 8192, 8192, 64), "window", HALF, window=512),
        Case("single precision", (8, 16, 2048, 2048, 64), "causal"),
        Case("odd width", (8, 16, 2048, 2048, 80), "causal", HALF),
    ]
    dropped = [Case("dropout", (8, 16, 2048, 2048, 64), mask, HALF, True, dropout=0.1) for mask in ("causal", "full")]
    learn = [replace(case, backward=True) for case in (*short[2:3], *short[4:], *both)]
    return short + decode + both + learn + dropped


def gather(case: Case, inputs: Inputs) -> Sequence[Entry]:
    """All kernels; flex where it is worth its compile time, the map itself where it is small."""
    _, _, T, S, D = case.shape
    entries = [softlook_entry(case, inputs), *fused(case, inputs), *forced(case, inputs)]
    if case.name == "window" or (case.name == "grid" and S in FLEX_LENGTHS and D == 64):
        entries.append(compiled_flex(case, inputs))
    if case.mask == "window":
        entries.append(flash_window(case, inputs))
    if case.shape[0] * case.shape[1] * T * S <= 1 << 28:
        entries.append(eager(case, inputs))
    return entries


def measure(report: Report, deadline: Deadline, parts: set[str], dry: bool, quick: bool) -> None:
    """Everything on the GPU. `dry` is the same on the CPU at tiny sizes: a rehearsal, whose numbers mean nothing."""
    device, brief = "cpu" if dry else "cuda", dry or quick
    if "H" in parts:
        host_costs.overhead(report, device, brief)
        host_costs.first_calls(report, device, dry)
    if "E" in parts:
        _dispatch(report, device, deadline.share(0.6), dry, quick)
    if "G" in parts:
        bias_costs.measure(report, device, deadline, brief, dry)
    if "F" in parts:
        look_costs.measure(report, device, deadline, quick, dry)
    report.say(f"Measured in {deadline.spent() / 60:.1f} minutes.")


def _dispatch(report: Report, device: str, deadline: Deadline, dry: bool, quick: bool) -> None:
    report.section("E. attention on the GPU", HOW_TO_READ, "Times are the device's own; for the host's see H.")
    _kernels(report, device, dry)
    sweep = Sweep(report, gather, COLUMNS, watch_for(device), deadline)
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
    """The names of the kernels that really run."""
    case = Case("kernels", (4, 16, 1024, 1024, 64), "causal", HALF, device=device)
    case = _tiny(case) if dry else case
    inputs = make_inputs(case)
    table = report.table("asked for", "kernel that ran longest")
    settings = {"sdpa, as it comes": None, SOFTLOOK: None} | {
        name: partial(sdpa_kernel, kind) for name, kind in FORCED.items()
    }
    for name, setting in settings.items():
        entry = softlook_entry(case, inputs) if name == SOFTLOOK else fused(case, inputs)[0]
        table.add(name, _longest(replace(entry, context=setting) if setting else entry, device))


def _longest(entry: Entry, device: str) -> str:
    activity = ProfilerActivity.CUDA if device == "cuda" else ProfilerActivity.CPU
    try:
        with entry.context():
            entry.call()
            with hushed(), profile(activities=[activity]) as recorded:
                entry.call()
                if device == "cuda":
                    torch.cuda.synchronize()
        own = "self_device_time_total" if device == "cuda" else "self_cpu_time_total"
        events = [event for event in recorded.key_averages() if getattr(event, own) > 0]
        return max(events, key=lambda event: getattr(event, own)).key[:90] if events else "–"
    except Exception as problem:
        return why(problem)
