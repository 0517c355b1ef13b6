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
from benchmarks.contest import tidy, why
from benchmarks.dense_look import BINS, TOP, dense_statistics, look_errors
from benchmarks.memory import peak_bytes
from benchmarks.report import Report, Table, megabytes, ms
from benchmarks.timing import Deadline, Entry, Samples, Watch, median, race, watch_for
from softlook.ops.look import ALL_STATS, DEFAULT_STATS

NO_TOP = tuple(name for name in ALL_STATS if not name.startswith("top_"))
SINGLE = tuple(name for name in ALL_STATS if name != "top_indices")
EVERY = "look: everything"
GOALS = {EVERY: 3.0, "look: without top-k": 2.2}
"""Multiples of the fused forward pass, on the CPU."""
FUSED, DENSE = "fused forward", "dense: everything"
APART = 8192
"""From this length on, the dense map on the CPU is computed in a separate process."""
ROOM = 14 << 30
"""Free bytes it needs."""


@dataclass(frozen=True)
class Finding:
    """Results for one length and mask: times relative to the fused pass and to the dense map, and memory."""

    where: str
    fused: dict[str, float]
    dense: float | None
    memory: float | None
    errors: dict[str, float]


def measure(report: Report, device: str, deadline: Deadline, quick: bool, dry: bool = False) -> None:
    gpu = device == "cuda"
    what = "F. look on the GPU" if gpu or dry else "B. look"
    report.section(
        what,
        f"Everything is {', '.join(ALL_STATS)} (top {TOP}, {BINS} bins). `x fused` is the time over that of torch's "
        "fused forward pass, `x dense` the time of the same statistics from the whole map over ours. MiB: the most "
        "held at a time beside the inputs. All rows of one length and mask were timed in turn with each other.",
    )
    heads, lengths = (16, (2048, 8192, 16384)) if gpu else (8, (512, 2048, 8192))
    lengths = (256, 512) if quick or dry else lengths
    kind = torch.bfloat16 if gpu else torch.float32
    table = report.table("what", "N", "mask", "ms", "x fused", "x dense", "MiB")
    watch, found = watch_for(device), []
    for length in lengths:
        for mask in ("full", "causal"):
            if deadline.passed():
                report.say(f"The time limit was reached before N{length} {mask}.")
                continue
            case = Case("look", (1, heads, length, length, 64), mask, kind, device=device)
            try:
                found.append(_one_length(table, case, watch, budget=0.3 if quick or dry else 3.0))
            except Exception as problem:
                table.add("the whole length", length, mask, why(problem), None, None, None)
                tidy(device)
    _conclude(report, found, goals=not gpu)


def runners(case: Case, inputs: Inputs) -> list[Entry]:
    """All entries for this map, the fused pass first."""
    query, key, value = inputs.query, inputs.key, inputs.value
    causal = case.mask == "causal"
    words: dict[str, Any] = {"mask": softlook.masks.causal() if causal else None, "top": TOP, "bins": BINS}
    setting = partial(sdpa_kernel, SDPBackend.CUDNN_ATTENTION) if case.device == "cuda" else None
    forward = partial(sdpa, query, key, value, is_causal=causal)
    looks = {"everything": ALL_STATS, "without top-k": NO_TOP}
    if case.shape[3] <= 2048:
        looks |= {"basic": DEFAULT_STATS} | {f"only {name}": (name,) for name in SINGLE}
    entries = [Entry(FUSED, forward, setting) if setting else Entry(FUSED, forward)]
    entries += [
        Entry(f"look: {name}", partial(softlook.look, query, key, stats=ask, **words)) for name, ask in looks.items()
    ]
    both = partial(softlook.attention_and_look, query, key, value, stats=ALL_STATS, **words)
    return [*entries, Entry("attention_and_look: everything", both)]


def _one_length(table: Table, case: Case, watch: Watch, budget: float) -> Finding:
    inputs, length = make_inputs(case), case.shape[3]
    entries = runners(case, inputs)
    peaks = {entry.name: _peak(entry, case.device) for entry in entries}
    apart = case.device == "cpu" and length >= APART
    dense_call = partial(dense_statistics, inputs.query, inputs.key, case.mask == "causal")
    dense: dict[str, Any] = {}
    if apart:
        dense = _apart(case)
    else:
        entry = Entry(DENSE, dense_call)
        try:
            peaks[DENSE] = _peak(entry, case.device)
            entries.append(entry)
        except Exception as problem:
            dense["problem"] = why(problem)
            tidy(case.device)
    with torch.no_grad():
        samples = race(entries, watch, budget, least=3)
        seen = softlook.look(inputs.query, inputs.key, mask=_mask(case), stats=ALL_STATS, top_k=TOP, bins=BINS)
        errors = look_errors(seen, inputs.query, inputs.key, case.mask == "causal")
    _rows(table, case, samples, peaks, dense)
    tidy(case.device)
    return _found(case, samples, peaks, dense, errors)


def _rows(table: Table, case: Case, samples: dict[str, Samples], peaks: dict[str, int], dense: dict[str, Any]) -> None:
    where, fused = (case.shape[3], case.mask), median(samples[FUSED])
    for name, found in samples.items():
        seconds = median(found)
        beside = median(samples[DENSE]) / seconds if DENSE in samples and name == EVERY else None
        table.add(name, *where, ms(seconds), seconds / fused, beside, megabytes(peaks[name]))
    if "problem" in dense:
        table.add(DENSE, *where, dense["problem"], None, None, None)
    elif dense:
        ratio = dense["dense"] / dense["look"]
        table.add(f"{DENSE} (own process)", *where, ms(dense["dense"]), None, None, megabytes(dense["bytes"]))
        table.add("look: everything (own process)", *where, ms(dense["look"]), None, ratio, None)


def _found(
    case: Case, samples: dict[str, Samples], peaks: dict[str, int], dense: dict[str, Any], errors: dict[str, float]
) -> Finding:
    fused, mine = median(samples[FUSED]), median(samples[EVERY])
    beside = dense["dense"] / dense["look"] if "dense" in dense else None
    beside = median(samples[DENSE]) / mine if DENSE in samples else beside
    held = dense.get("bytes", peaks.get(DENSE))
    return Finding(
        where=f"N{case.shape[3]} {case.mask}",
        fused={name: median(samples[name]) / fused for name in GOALS},
        dense=beside,
        memory=held / max(peaks[EVERY], 1) if held else None,
        errors=errors,
    )


def _conclude(report: Report, found: list[Finding], goals: bool) -> None:
    """Write one summary line per claim; errors go below the table."""
    for finding in found:
        told = ", ".join(f"{name} {error:.0e}" for name, error in finding.errors.items())
        report.say(f"- Relative errors against float64 at {finding.where}: {told}.")
    if not found:
        return
    for name, goal in GOALS.items():
        told = ", ".join(f"{finding.fused[name]:.1f} ({finding.where})" for finding in found)
        report.in_short(f"`{name}`, times the fused forward pass: {told}{f'; goal {goal}' if goals else ''}")
    told = ", ".join(f"{f.dense:.1f} ({f.where})" for f in found if f.dense is not None)
    report.in_short(f"`{EVERY}`, times as fast as the same from the whole map: {told}")
    told = ", ".join(f"1/{f.memory:.0f} ({f.where})" for f in found if f.memory is not None)
    report.in_short(f"`{EVERY}`, share of the memory of the whole-map way: {told}")


def _peak(entry: Entry, device: str) -> int:
    with torch.no_grad(), entry.context():
        return peak_bytes(entry.call, device)


def _mask(case: Case) -> softlook.masks.Mask | None:
    return softlook.masks.causal() if case.mask == "causal" else None


def _apart(case: Case) -> dict[str, Any]:
    """Compute the dense map in another process, where it may fail, and time `look` there as well."""
    if _free() < ROOM:
        return {"problem": f"left out: less than {ROOM >> 30} GiB free"}
    command = [sys.executable, "-m", "benchmarks.look_costs", str(case.shape[3]), case.mask]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=True)
        return json.loads(done.stdout.strip().splitlines()[-1])
    except (subprocess.SubprocessError, ValueError) as problem:
        return {"problem": type(problem).__name__}


def _free() -> int:
    """Return the available bytes of memory."""
    info = Path("/proc/meminfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    free = [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable")]
    return free[0] if free else ROOM


def _alone(length: int, mask: str) -> dict[str, float]:
    """The work of the other process."""
    case = Case("look", (1, 8, length, length, 64), mask)
    inputs = make_inputs(case)
    look = partial(softlook.look, inputs.query, inputs.key, mask=_mask(case), stats=ALL_STATS, top_k=TOP, bins=BINS)
    dense: Callable[[], object] = partial(dense_statistics, inputs.query, inputs.key, mask == "causal")
    watch = watch_for("cpu")
    with torch.no_grad():
        held = peak_bytes(dense, "cpu")  # warms up, too
        look()
        times = [(watch.once(Entry("dense", dense)), watch.once(Entry("look", look))) for _ in range(2)]
    return {"dense": median([one for one, _ in times]), "look": median([other for _, other in times]), "bytes": held}


if __name__ == "__main__":
    print(json.dumps(_alone(int(sys.argv[1]), sys.argv[2])))
