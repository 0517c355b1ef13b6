"""B and F. Cost of `look`, compared with the fused forward pass and with the dense map."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as sdpa

import softlook
from benchmarks.cases import Case, Inputs, make_inputs
from benchmarks.comparison import free_memory, short_message
from benchmarks.look_reference import BINS, TOP_K, dense_statistics, look_errors
from benchmarks.memory import peak_bytes
from benchmarks.report import Report, Table, megabytes, ms
from benchmarks.timing import Deadline, Entry, Samples, Timer, median, time_interleaved, timer_for
from softlook.ops.look import ALL_STATS, DEFAULT_STATS

WITHOUT_TOP_K = tuple(name for name in ALL_STATS if not name.startswith("top_"))
SINGLE = tuple(name for name in ALL_STATS if name != "top_indices")
ALL = "look: all"
GOALS = {ALL: 3.0, "look: without top-k": 2.2}
"""Multiples of the fused forward pass, on the CPU."""
FUSED, DENSE = "fused forward", "dense: all"
SUBPROCESS_LENGTH = 8192
"""From this length on, the dense map on the CPU is computed in a separate process."""
SUBPROCESS_BYTES = 14 << 30
"""Available memory that this requires."""


@dataclass(frozen=True)
class Finding:
    """Results for one length and mask: times relative to the fused pass and to the dense map, and memory."""

    case: str
    vs_fused: dict[str, float]
    """Time relative to the fused forward pass, by entry."""
    dense_speedup: float | None
    """Time of the dense map relative to `look`."""
    dense_memory: float | None
    """Peak memory of the dense map relative to `look`."""
    errors: dict[str, float]


def measure(report: Report, device: str, deadline: Deadline, quick: bool, dry: bool = False) -> None:
    is_gpu = device == "cuda"
    report.section(
        "F. look on the GPU" if is_gpu or dry else "B. look",
        f"All statistics are {', '.join(ALL_STATS)} (top {TOP_K}, {BINS} bins). `x fused` is the time relative "
        "to torch's fused forward pass, `x dense` the time of the same statistics from the dense map relative to "
        "softlook. MiB: peak memory without the inputs. All rows of one length and mask were timed interleaved.",
    )
    heads, lengths = (16, (2048, 8192, 16384)) if is_gpu else (8, (512, 2048, 8192))
    lengths = (256, 512) if quick or dry else lengths
    dtype = torch.bfloat16 if is_gpu else torch.float32
    table = report.table("call", "N", "mask", "ms", "x fused", "x dense", "MiB")
    timer, findings = timer_for(device), []
    for length in lengths:
        for mask in ("full", "causal"):
            if deadline.passed():
                report.text(f"The time limit was reached before N{length} {mask}.")
                continue
            case = Case("look", (1, heads, length, length, 64), mask, dtype, device=device)
            try:
                findings.append(_measure_case(table, case, timer, budget=0.3 if quick or dry else 3.0))
            except Exception as error:
                table.add("all calls", length, mask, short_message(error), None, None, None)
                free_memory(device)
    _conclude(report, findings, goals=not is_gpu)


def make_entries(case: Case, inputs: Inputs) -> list[Entry]:
    """The fused forward pass and all calls of softlook."""
    query, key, value = inputs.query, inputs.key, inputs.value
    causal = case.mask == "causal"
    kwargs: dict[str, Any] = {"mask": _mask(case), "top_k": TOP_K, "bins": BINS}
    context = partial(sdpa_kernel, SDPBackend.CUDNN_ATTENTION) if case.device == "cuda" else None
    forward = partial(sdpa, query, key, value, is_causal=causal)
    looks = {"all": ALL_STATS, "without top-k": WITHOUT_TOP_K}
    if case.shape[3] <= 2048:
        looks |= {"basic": DEFAULT_STATS} | {f"only {name}": (name,) for name in SINGLE}
    entries = [Entry(FUSED, forward, context) if context else Entry(FUSED, forward)]
    entries += [
        Entry(f"look: {name}", partial(softlook.look, query, key, stats=stats, **kwargs))
        for name, stats in looks.items()
    ]
    both = partial(softlook.attention_and_look, query, key, value, stats=ALL_STATS, **kwargs)
    return [*entries, Entry("attention_and_look: all", both)]


def _measure_case(table: Table, case: Case, timer: Timer, budget: float) -> Finding:
    inputs, length = make_inputs(case), case.shape[3]
    entries = make_entries(case, inputs)
    peaks = {entry.name: _peak(entry, case.device) for entry in entries}
    in_subprocess = case.device == "cpu" and length >= SUBPROCESS_LENGTH
    dense_call = partial(dense_statistics, inputs.query, inputs.key, case.mask == "causal")
    dense: dict[str, Any] = {}
    if in_subprocess:
        dense = _measure_in_subprocess(case)
    else:
        entry = Entry(DENSE, dense_call)
        try:
            peaks[DENSE] = _peak(entry, case.device)
            entries.append(entry)
        except Exception as error:
            dense["error"] = short_message(error)
            free_memory(case.device)
    with torch.no_grad():
        samples = time_interleaved(entries, timer, budget, min_rounds=3)
        look = softlook.look(inputs.query, inputs.key, mask=_mask(case), stats=ALL_STATS, top_k=TOP_K, bins=BINS)
        errors = look_errors(look, inputs.query, inputs.key, case.mask == "causal")
    _add_rows(table, case, samples, peaks, dense)
    free_memory(case.device)
    return _finding(case, samples, peaks, dense, errors)


def _add_rows(
    table: Table, case: Case, samples: dict[str, Samples], peaks: dict[str, int], dense: dict[str, Any]
) -> None:
    description, fused = (case.shape[3], case.mask), median(samples[FUSED])
    for name, times in samples.items():
        seconds = median(times)
        ratio = median(samples[DENSE]) / seconds if DENSE in samples and name == ALL else None
        table.add(name, *description, ms(seconds), seconds / fused, ratio, megabytes(peaks[name]))
    if "error" in dense:
        table.add(DENSE, *description, dense["error"], None, None, None)
    elif dense:
        ratio = dense["dense"] / dense["look"]
        table.add(f"{DENSE} (own process)", *description, ms(dense["dense"]), None, None, megabytes(dense["bytes"]))
        table.add(f"{ALL} (own process)", *description, ms(dense["look"]), None, ratio, None)


def _finding(
    case: Case, samples: dict[str, Samples], peaks: dict[str, int], dense: dict[str, Any], errors: dict[str, float]
) -> Finding:
    fused = median(samples[FUSED])
    speedup = dense["dense"] / dense["look"] if "dense" in dense else None
    speedup = median(samples[DENSE]) / median(samples[ALL]) if DENSE in samples else speedup
    dense_bytes = dense.get("bytes", peaks.get(DENSE))
    return Finding(
        case=f"N{case.shape[3]} {case.mask}",
        vs_fused={name: median(samples[name]) / fused for name in GOALS},
        dense_speedup=speedup,
        dense_memory=dense_bytes / max(peaks[ALL], 1) if dense_bytes else None,
        errors=errors,
    )


def _conclude(report: Report, findings: list[Finding], goals: bool) -> None:
    """Add the errors below the table, and the summary."""
    for finding in findings:
        errors = ", ".join(f"{name} {error:.0e}" for name, error in finding.errors.items())
        report.text(f"- Relative errors against float64 at {finding.case}: {errors}.")
    if not findings:
        return
    for name, goal in GOALS.items():
        ratios = ", ".join(f"{one.vs_fused[name]:.1f} ({one.case})" for one in findings)
        report.summarize(
            f"`{name}`, time relative to the fused forward pass: {ratios}{f'; goal {goal}' if goals else ''}"
        )
    speedups = [f"{one.dense_speedup:.1f} ({one.case})" for one in findings if one.dense_speedup is not None]
    report.summarize(f"`{ALL}`, speedup over the dense map: {', '.join(speedups)}")
    memory = [f"1/{one.dense_memory:.0f} ({one.case})" for one in findings if one.dense_memory is not None]
    report.summarize(f"`{ALL}`, memory relative to the dense map: {', '.join(memory)}")


def _peak(entry: Entry, device: str) -> int:
    with torch.no_grad(), entry.context():
        return peak_bytes(entry.call, device)


def _mask(case: Case) -> softlook.masks.Mask | None:
    return softlook.masks.causal() if case.mask == "causal" else None


def _measure_in_subprocess(case: Case) -> dict[str, Any]:
    """Compute the dense map in another process, where it may fail, and time `look` there as well."""
    if _available_bytes() < SUBPROCESS_BYTES:
        return {"error": f"skipped: less than {SUBPROCESS_BYTES >> 30} GiB available"}
    command = [sys.executable, "-m", "benchmarks.look_costs", str(case.shape[3]), case.mask]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=True)
        return json.loads(done.stdout.strip().splitlines()[-1])
    except (subprocess.SubprocessError, ValueError) as error:
        return {"error": type(error).__name__}


def _available_bytes() -> int:
    """Return the available bytes of memory."""
    info = Path("/proc/meminfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    available = [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable")]
    return available[0] if available else SUBPROCESS_BYTES


def _run_child(length: int, mask: str) -> dict[str, float]:
    """The measurement in the other process."""
    case = Case("look", (1, 8, length, length, 64), mask)
    inputs = make_inputs(case)
    look = partial(softlook.look, inputs.query, inputs.key, mask=_mask(case), stats=ALL_STATS, top_k=TOP_K, bins=BINS)
    dense: Callable[[], object] = partial(dense_statistics, inputs.query, inputs.key, mask == "causal")
    timer = timer_for("cpu")
    with torch.no_grad():
        dense_bytes = peak_bytes(dense, "cpu")  # also the warm-up
        look()
        times = [(timer.once(Entry("dense", dense)), timer.once(Entry("look", look))) for _ in range(2)]
    dense_seconds, look_seconds = (median(list(each)) for each in zip(*times, strict=True))
    return {"dense": dense_seconds, "look": look_seconds, "bytes": dense_bytes}


if __name__ == "__main__":
    print(json.dumps(_run_child(int(sys.argv[1]), sys.argv[2])))
