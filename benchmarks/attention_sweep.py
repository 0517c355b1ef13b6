"""A. `attention` compared with torch's SDPA on the CPU, over shapes, masks and dtypes."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from benchmarks.cases import Case, Inputs
from benchmarks.implementations import eager, fused, fused_building_mask, math, softlook_entry
from benchmarks.report import Report
from benchmarks.sweep import HOW_TO_READ, Sweep
from benchmarks.timing import Deadline, Entry, timer_for

COLUMNS = ("sdpa", "sdpa, building mask", "math", "eager")

FORWARD = (
    Case("decode", (8, 8, 1, 512, 64), "causal"),
    Case("decode", (8, 8, 1, 4096, 64), "causal"),
    Case("decode, padded", (8, 8, 1, 4096, 64), "padding"),
    Case("decode, GQA", (8, 8, 1, 4096, 64), "causal", kv_heads=2),
    Case("short", (512, 8, 16, 16, 32)),
    Case("short", (512, 8, 16, 16, 32), "padding"),
    Case("short", (128, 8, 64, 64, 64)),
    Case("short", (128, 8, 64, 64, 64), "causal"),
    Case("short", (128, 8, 64, 64, 32), "padding"),
    Case("sentence", (16, 8, 128, 128, 64)),
    Case("sentence", (16, 8, 128, 128, 64), "causal"),
    Case("sentence", (16, 8, 128, 128, 64), "padding"),
    Case("page", (4, 8, 512, 512, 64)),
    Case("page", (4, 8, 512, 512, 64), "causal"),
    Case("page", (4, 8, 512, 512, 64), "padding"),
    Case("page", (4, 8, 512, 512, 64), "window", window=128),
    Case("page, GQA", (4, 8, 512, 512, 64), kv_heads=2),
    Case("page, GQA", (4, 8, 512, 512, 64), "causal", kv_heads=2),
    Case("chunk", (4, 8, 128, 512, 64), "causal"),
    Case("chunk", (1, 8, 256, 2048, 64), "causal"),
    Case("article", (1, 8, 2048, 2048, 64)),
    Case("article", (1, 8, 2048, 2048, 64), "causal"),
    Case("article", (1, 8, 2048, 2048, 64), "padding"),
    Case("article", (1, 8, 2048, 2048, 64), "window", window=256),
    Case("book", (1, 8, 4096, 4096, 64)),
    Case("book", (1, 8, 4096, 4096, 64), "causal"),
    Case("book", (1, 8, 4096, 4096, 64), "window", window=256),
)
BACKWARD = ("short", "sentence", "page", "page, GQA", "article")
"""Cases that are also timed with the backward pass; of the long ones, only causal ones."""
BF16_BACKWARD = ("sentence", "page")


def cases(quick: bool) -> list[Case]:
    forward = [replace(case, dtype=dtype) for dtype in (torch.float32, torch.bfloat16) for case in FORWARD]
    backward = [
        replace(case, backward=True)
        for case in forward
        if case.name in (BACKWARD if case.dtype == torch.float32 else BF16_BACKWARD)
        and (case.shape[2] <= 512 or case.mask == "causal")
    ]
    cases = forward + backward
    return [case for case in cases if max(case.shape[2:4]) <= 512][::4] if quick else cases


def make_entries(case: Case, inputs: Inputs) -> Sequence[Entry]:
    """softlook, torch's fused CPU kernel, and two unfused baselines."""
    fused_entries = [*fused(case, inputs), *fused_building_mask(case, inputs)]
    return [softlook_entry(case, inputs), *fused_entries, math(case, inputs), eager(case, inputs)]


def measure(report: Report, deadline: Deadline, quick: bool) -> None:
    report.section("A. attention", HOW_TO_READ)
    sweep = Sweep(report, make_entries, COLUMNS, timer_for("cpu"), deadline)
    sweep.run(cases(quick), budget=0.1 if quick else 0.6)
    sweep.conclude("attention on the CPU")
