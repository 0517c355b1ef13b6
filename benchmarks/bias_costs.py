"""C and G. ALiBi, T5, a soft cap and a sink: softlook, torch with the bias written out, and the whole map."""

from collections.abc import Sequence

import torch

from benchmarks.cases import Case, Inputs, make_inputs
from benchmarks.contest import run_cell, tidy, why
from benchmarks.memory import bytes_of, peak_bytes
from benchmarks.peers import SOFTLOOK, dense_bias, eager, fused, softlook_entry
from benchmarks.report import Report, megabytes, ms
from benchmarks.sweep import exact, tell_failures
from benchmarks.timing import Deadline, Entry, watch_for

MASKS = {"alibi": "causal", "t5": "full", "softcap": "causal", "sink": "causal"}
WRITTEN, PLAIN = "sdpa, bias written out", "sdpa"
"""The peers; the plain one computes something simpler, and shows what a bias costs."""


def cases(device: str, quick: bool) -> list[Case]:
    gpu = device == "cuda"
    kind, lengths = (torch.bfloat16, (4096,)) if gpu else (torch.float32, (2048, 4096))
    heads = 16 if gpu else 8
    return [
        Case(extra, (1, heads, length, length, 64), mask, kind, backward, extra=extra, device=device)
        for length in ((192,) if quick else lengths)
        for backward in (False, True)
        for extra, mask in MASKS.items()
    ]


def measure(report: Report, device: str, deadline: Deadline, quick: bool, dry: bool = False) -> None:
    report.section(
        "G. biases, soft cap and sink on the GPU" if device == "cuda" or dry else "C. biases, soft cap and sink",
        "Milliseconds, and the most MiB held at a time beside queries, keys and values. The bias written out is "
        "ready-made (and counted among the MiB), except that of T5 in the backward pass, where its table learns. "
        "`no bias` is torch's fused attention without any of it: what a bias would cost if it cost nothing.",
    )
    heads = ("cell", "mask", "pass", "path", SOFTLOOK, "written out", "eager", "no bias")
    table = report.table(*heads, "MiB", "written out MiB", "eager MiB", "error", "peers' error")
    watch = watch_for(device)
    for case in cases(device, quick or dry):
        if deadline.passed():
            report.say(f"The time was up before {case.name} {case.sizes}, {case.passes}.")
            break
        outcome = run_cell(case, gather, watch, budget=0.2 if quick or dry else 1.0)
        held = _bytes(case)
        times = [outcome.seconds(name) for name in (SOFTLOOK, WRITTEN, "eager")]
        named = (f"{case.name} {case.sizes}", case.mask, case.passes, outcome.path)
        errors = (exact(outcome.errors.get(SOFTLOOK)), exact(outcome.worst_error))
        bare = run_cell(
            Case("bare", case.shape, case.mask, case.dtype, case.backward, device=device), _bare, watch, 0.2
        )
        table.add(
            *named,
            *map(ms, [*times, bare.seconds(PLAIN)]),
            *(held.get(n) for n in (SOFTLOOK, WRITTEN, "eager")),
            *errors,
        )
        tell_failures(report, outcome)


def gather(case: Case, inputs: Inputs) -> Sequence[Entry]:
    """All who can answer."""
    entries = [softlook_entry(case, inputs), dense_bias(case, inputs), eager(case, inputs)]
    return [entry for entry in entries if entry is not None]


def _bare(case: Case, inputs: Inputs) -> Sequence[Entry]:
    return fused(case, inputs)[:1]


def _bytes(case: Case) -> dict[str, str]:
    """The most each of them holds; the bias written out belongs to it."""
    held = {}
    inputs = make_inputs(case)
    for entry in gather(case, inputs):
        ready = bytes_of(inputs.cache["bias"]) if entry.name == WRITTEN and not _learns(case) else 0
        try:
            held[entry.name] = megabytes(peak_bytes(entry.call, case.device) + ready)
        except Exception as problem:
            held[entry.name] = why(problem)
        tidy(case.device)
    return held


def _learns(case: Case) -> bool:
    return case.extra == "t5" and case.backward
