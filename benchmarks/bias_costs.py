"""C and G. ALiBi, T5 bias, softcap and sink: softlook, SDPA with a dense bias, and dense attention."""

from collections.abc import Sequence

import torch

from benchmarks.cases import Case, Inputs, make_inputs
from benchmarks.comparison import free_memory, run_case, short_message
from benchmarks.implementations import (
    DENSE_BIAS,
    SOFTLOOK,
    dense_bias,
    eager,
    fused,
    has_bias_gradient,
    softlook_entry,
)
from benchmarks.memory import peak_bytes, tensor_bytes
from benchmarks.report import Report, megabytes, ms
from benchmarks.sweep import format_error, report_failures
from benchmarks.timing import Deadline, Entry, timer_for

MASKS = {"alibi": "causal", "t5": "full", "softcap": "causal", "sink": "causal"}
NO_BIAS = "sdpa"
"""The baseline without a bias shows what a bias costs."""


def cases(device: str, quick: bool) -> list[Case]:
    is_gpu = device == "cuda"
    dtype, lengths = (torch.bfloat16, (4096,)) if is_gpu else (torch.float32, (2048, 4096))
    heads = 16 if is_gpu else 8
    return [
        Case(extra, (1, heads, length, length, 64), mask, dtype, backward, extra=extra, device=device)
        for length in ((192,) if quick else lengths)
        for backward in (False, True)
        for extra, mask in MASKS.items()
    ]


def measure(report: Report, device: str, deadline: Deadline, quick: bool, dry: bool = False) -> None:
    report.section(
        "G. biases, softcap and sink on the GPU" if device == "cuda" or dry else "C. biases, softcap and sink",
        "Milliseconds, and peak memory in MiB without queries, keys and values. The dense bias is precomputed (and "
        "included in the memory), except for that of T5 in the backward pass, whose table has a gradient. `no bias` is "
        "torch's fused attention without bias, softcap and sink.",
    )
    header = ("case", "mask", "pass", "backend", SOFTLOOK, "dense bias", "eager", "no bias")
    table = report.table(*header, "MiB", "dense bias MiB", "eager MiB", "error", "baseline error")
    timer = timer_for(device)
    for case in cases(device, quick or dry):
        if deadline.passed():
            report.text(f"The time limit was reached before {case.name} {case.sizes}, {case.passes}.")
            break
        result = run_case(case, make_entries, timer, budget=0.2 if quick or dry else 1.0)
        without_bias = Case("no bias", case.shape, case.mask, case.dtype, case.backward, device=device)
        times = [result.seconds(name) for name in (SOFTLOOK, DENSE_BIAS, "eager")]
        times.append(run_case(without_bias, _without_bias, timer, 0.2).seconds(NO_BIAS))
        memory = _peak_memory(case)
        errors = (format_error(result.errors.get(SOFTLOOK)), format_error(result.max_baseline_error))
        table.add(
            *(f"{case.name} {case.sizes}", case.mask, case.passes, result.backend),
            *map(ms, times),
            *(memory.get(name) for name in (SOFTLOOK, DENSE_BIAS, "eager")),
            *errors,
        )
        report_failures(report, result)


def make_entries(case: Case, inputs: Inputs) -> Sequence[Entry]:
    """All implementations that support the case."""
    entries = [softlook_entry(case, inputs), dense_bias(case, inputs), eager(case, inputs)]
    return [entry for entry in entries if entry is not None]


def _without_bias(case: Case, inputs: Inputs) -> Sequence[Entry]:
    return fused(case, inputs)[:1]


def _peak_memory(case: Case) -> dict[str, str]:
    """Peak memory of each implementation, including a precomputed bias."""
    memory = {}
    inputs = make_inputs(case)
    for entry in make_entries(case, inputs):
        is_precomputed = entry.name == DENSE_BIAS and not has_bias_gradient(case)
        bias_bytes = tensor_bytes(inputs.cache["bias"]) if is_precomputed else 0
        try:
            memory[entry.name] = megabytes(peak_bytes(entry.call, case.device) + bias_bytes)
        except Exception as error:
            memory[entry.name] = short_message(error)
        free_memory(case.device)
    return memory
