"""Looking on a GPU: `python -m benchmarks.look_gpu` compares a look with cuDNN's forward pass on the same inputs.

Parts: correct (against float64), speed, memory, rollout. `--tune` first times block sizes of every kernel and uses the
fastest; it prints them in the form of `look_triton.BLOCKS`.
"""

import argparse
import itertools
import multiprocessing
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch
from torch import Tensor

from benchmarks.timing import CudaTimer, Deadline, Entry, median, time_interleaved
from softlook import attention_and_look, look, masks, positions
from softlook.blocks.attention import AttentionCore
from softlook.lens.rollout import attention_rollout
from softlook.lens.trace import AttentionCall, AttentionTrace, Trace
from softlook.ops import statistics
from softlook.ops.arguments import prepare_args
from softlook.ops.backends import look_triton
from softlook.ops.backends.look_triton import BLOCKS, Blocks
from softlook.ops.look import ALL_STATS

HEADS, WIDTHS, LENGTHS = 16, (64, 128), (2048, 3072, 8192, 32768)
CAUSAL = masks.causal()
FULL = ("entropy", "max_weight", "received", "pooled_mean")
TUNED_LENGTH, TUNE_PROCESSES = 8192, 12
GOALS = "goals: full <= 1.8, with top-8 <= 2.6, rollout <= 1.3 forward passes of a layer, 64k tokens below 2 GB"


def inputs(N: int, D: int, heads: int = HEADS, dtype: torch.dtype = torch.bfloat16) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator("cuda").manual_seed(0)
    query, key, value = (torch.randn(1, heads, N, D, device="cuda", generator=generator).to(dtype) for _ in range(3))
    return query, key, value


def correct() -> None:
    """The largest error of each statistic against plain torch in float64, relative to the largest value."""
    padding = masks.padding([1500])
    documents = masks.documents((torch.arange(2048, device="cuda") // 300)[None])
    cases: dict[str, tuple[int, int, torch.dtype, dict[str, Any]]] = {
        "causal": (2048, 64, torch.bfloat16, {"mask": CAUSAL}),
        "causal, 128 wide": (2048, 128, torch.bfloat16, {"mask": CAUSAL}),
        "causal, 3000 long": (3000, 64, torch.float16, {"mask": CAUSAL}),
        "full, 80 wide": (1100, 80, torch.bfloat16, {}),
        "float32": (1500, 64, torch.float32, {"mask": CAUSAL}),
        "window": (2048, 64, torch.bfloat16, {"mask": masks.window(300, 40)}),
        "padding": (2048, 64, torch.bfloat16, {"mask": padding & CAUSAL}),
        "documents": (2048, 64, torch.bfloat16, {"mask": documents & CAUSAL}),
        "softcap and sink": (2048, 64, torch.bfloat16, {"mask": CAUSAL, "softcap": 5.0, "sink": 1.0}),
        "alibi": (2048, 64, torch.bfloat16, {"mask": CAUSAL, "bias": positions.alibi(HEADS)}),
    }
    for name, (N, D, dtype, options) in cases.items():
        query, key, value = inputs(N, D, dtype=dtype)
        for stats in (FULL, ALL_STATS) if name.startswith("causal") else (ALL_STATS,):
            with_report(lambda s=stats, o=options, n=name, q=query, k=key, v=value: check(n, q, k, v, s, o))


def check(name: str, query: Tensor, key: Tensor, value: Tensor, stats: tuple[str, ...], options: Any) -> None:
    output, seen = attention_and_look(query, key, value, stats=stats, **options)
    args = prepare_args(query.double(), key.double(), **options)
    requested = frozenset(stats)
    expected = statistics.compute_statistics(args, requested, top_k=8, bins=64, value=value.double())
    errors = {"output": relative_error(output, expected["output"])}
    for stat, values in seen.values.items():
        if stat == "top_indices":
            errors[stat] = values.ne(expected[stat]).double().mean().item()  # the share that differs: near ties
        else:
            errors[stat] = relative_error(values, expected[stat])
    print(f"{name} ({seen.backend}): " + ", ".join(f"{stat} {error:.1e}" for stat, error in errors.items()), flush=True)


def relative_error(values: Tensor, expected: Tensor) -> float:
    difference = torch.where(values == expected, 0.0, values.double() - expected)
    return (difference.abs().max() / expected.nan_to_num(0, 0, 0).abs().max()).item()


def cudnn(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return torch.ops.aten._scaled_dot_product_cudnn_attention(query, key, value, None, False, 0.0, True)[0]


def flash(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return torch.ops.aten._scaled_dot_product_flash_attention(query, key, value, 0.0, True)[0]


def speed(seconds: float = 3.0) -> None:
    """Device time as a multiple of cuDNN's forward pass, and the wall time per call with the host's part."""
    for D, N in itertools.product(WIDTHS, LENGTHS):
        with_report(lambda D=D, N=N: speed_of(N, D, seconds))


def speed_of(N: int, D: int, seconds: float) -> None:
    query, key, value = inputs(N, D)

    def both(*stats: str) -> Callable[[], object]:
        return lambda: attention_and_look(query, key, value, mask=CAUSAL, stats=stats)

    entries = [
        Entry("cudnn", lambda: cudnn(query, key, value)),
        Entry("entropy", lambda: look(query, key, mask=CAUSAL, stats="entropy")),
        Entry("received", lambda: look(query, key, mask=CAUSAL, stats="received")),
        Entry("output+entropy", both("entropy", "max_weight")),
        Entry("output+received", both("received")),
        Entry("full", both(*FULL)),
        Entry("full+top8", both(*FULL, "top_weights", "top_indices")),
    ]
    for entry in entries:
        entry.call()
    samples = time_interleaved(entries, CudaTimer(), seconds)
    base, wall_base = median(samples["cudnn"]), wall(entries[0].call)
    for entry in entries:
        device, together = median(samples[entry.name]), wall(entry.call)
        print(
            f"N {N:6d} D {D:3d} {entry.name:16s} device {1e3 * device:8.3f} ms = {device / base:5.2f} cudnn; "
            f"wall {1e3 * together:8.3f} ms = {together / wall_base:5.2f} cudnn",
            flush=True,
        )


def wall(call: Callable[[], object]) -> float:
    """Seconds per call, several calls in a row."""
    torch.cuda.synchronize()
    start, count = time.perf_counter(), 0
    while count < 5 or (count < 100 and time.perf_counter() - start < 0.1):
        call()
        count += 1
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / count


def memory() -> None:
    """Memory beyond inputs and results for 64k tokens."""
    for D in WIDTHS:
        query, key, value = inputs(65536, D)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before, start = torch.cuda.memory_allocated(), time.perf_counter()
        results = attention_and_look(query, key, value, mask=CAUSAL, stats=FULL)
        torch.cuda.synchronize()
        peak, seconds = torch.cuda.max_memory_allocated() - before, time.perf_counter() - start
        held = torch.cuda.memory_allocated() - before
        print(f"64k tokens, D {D}: peak {peak / 1e9:.2f} GB, results {held / 1e9:.2f} GB, {seconds:.3f} s", flush=True)
        del results


def rollout(layers: int = 12, columns: int = 64, heads: int = 12) -> None:
    """Rollout as a multiple of that many forward passes of the fused kernel."""
    for N in (4096, 16384, 65536):
        query, key, value = inputs(N, 64, heads)
        call = AttentionCall(AttentionCore(), query, key, CAUSAL, None, value.float().norm(dim=-1))
        trace = Trace({f"blocks.{n}.attn": AttentionTrace([call]) for n in range(layers)}, {})
        sources = torch.zeros(N, columns, device="cuda")
        sources[torch.arange(N), torch.arange(N) * columns // N] = 1
        entries = [
            Entry("cudnn", lambda q=query, k=key, v=value: [cudnn(q, k, v) for _ in range(layers)]),
            Entry("flash", lambda q=query, k=key, v=value: [flash(q, k, v) for _ in range(layers)]),
            Entry("rollout", lambda t=trace, s=sources: attention_rollout(t, s)),
        ]
        for entry in entries:
            entry.call()
        times = {name: median(own) for name, own in time_interleaved(entries, CudaTimer(), 2.0).items()}
        print(
            f"rollout N {N}: {1e3 * times['rollout']:.3f} ms = {times['rollout'] / times['cudnn']:.2f} cudnn, "
            f"{times['rollout'] / times['flash']:.2f} flash",
            flush=True,
        )


CANDIDATES = {
    "rows": ((64, 128), (64, 128), (4, 8), (2, 3, 4)),
    "output": ((64, 128), (64, 128), (4, 8), (2, 3, 4)),
    "keys": ((64, 128), (64, 128), (4, 8), (2, 3, 4)),
    "top": ((32, 64, 128), (32, 64, 128), (4, 8), (2, 3)),
}


def candidates(purpose: str) -> Iterator[Blocks]:
    """Block sizes whose scores fill 32 to 128 registers of each thread."""
    for blocks in itertools.starmap(Blocks, itertools.product(*CANDIDATES[purpose])):
        held = blocks.queries * blocks.keys // (32 * blocks.warps)
        if 16 * blocks.warps <= blocks.queries * (1 if purpose == "keys" else 2) and 16 <= held <= 128:
            yield blocks


def tuned_call(purpose: str, width: int, N: int) -> Callable[[], object]:
    """A call that runs the kernel of one purpose."""
    query, key, value = inputs(N, width)
    args = prepare_args(query, key, mask=CAUSAL)
    launcher = look_triton.Launcher(args)
    if purpose == "keys":
        lse = torch.zeros(1, HEADS, N, device="cuda") + 9.0
        return lambda: launcher.keys(frozenset(FULL), lse, 64, from_parts=True)
    if purpose == "top":
        lse = torch.zeros(1, HEADS, N, device="cuda") + 9.0
        return lambda: launcher.top(8, lse)
    chosen = frozenset({"entropy"} if purpose == "rows" else {"entropy", "max_weight"})
    return lambda: launcher.queries(chosen, value if purpose != "rows" else None)


def compile_candidates(purpose: str, width: int, chosen: list[Blocks]) -> None:
    """Fill Triton's cache on disk."""
    call = tuned_call(purpose, width, 1024)
    for blocks in chosen:
        BLOCKS[purpose][width] = blocks
        try:
            call()
            torch.cuda.synchronize()
        except Exception:  # too many registers or too much shared memory: reported when it is timed
            continue


def tune() -> None:
    """Time all candidates and use the fastest."""
    jobs = [(purpose, width) for purpose in CANDIDATES for width in WIDTHS]
    with ProcessPoolExecutor(TUNE_PROCESSES, multiprocessing.get_context("spawn")) as pool:
        futures = [
            pool.submit(compile_candidates, purpose, width, list(candidates(purpose))[part::6])
            for purpose, width in jobs
            for part in range(6)
        ]
        for future in futures:
            try:
                future.result(timeout=150)
            except Exception as error:
                print(f"compiling: {type(error).__name__}: {error}")
    for purpose, width in jobs:
        with_report(lambda p=purpose, w=width: tune_one(p, w))
    for purpose, by_width in BLOCKS.items():
        print(f'    "{purpose}": {{{", ".join(f"{w}: {shown(b)}" for w, b in by_width.items())}}},', flush=True)


def tune_one(purpose: str, width: int) -> None:
    call, found = tuned_call(purpose, width, TUNED_LENGTH), []
    before, timer = BLOCKS[purpose][width], CudaTimer()
    for blocks in candidates(purpose):
        BLOCKS[purpose][width] = blocks
        try:
            call()
            entry = Entry("kernel", call)
            timer.once(entry)
            found.append((median([timer.sample(entry, 1.0) for _ in range(5)]), blocks))
        except Exception as error:
            print(f"{purpose} {width} {shown(blocks)}: {type(error).__name__} {str(error)[:80]}", flush=True)
    found.sort(key=lambda one: one[0])
    BLOCKS[purpose][width] = found[0][1] if found else before
    for seconds, blocks in found[:5]:
        print(f"{purpose} {width} {shown(blocks)}: {1e3 * seconds:.3f} ms", flush=True)


def shown(blocks: Blocks) -> str:
    return f"Blocks({blocks.queries}, {blocks.keys}, {blocks.warps}, {blocks.stages})"


def with_report(run: Callable[[], object]) -> None:
    """Run a part; a failure is printed, and the next part runs."""
    try:
        run()
    except Exception:
        traceback.print_exc()
        torch.cuda.empty_cache()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["correct", "speed", "memory", "rollout"])
    parser.add_argument("--tune", action="store_true", help="time block sizes first, and use the fastest")
    parser.add_argument("--minutes", type=float, default=4.0, help="start no part after this time")
    options = parser.parse_args()
    parts = {"tune": tune, "correct": correct, "speed": speed, "memory": memory, "rollout": rollout}
    deadline = Deadline(options.minutes)
    print(torch.cuda.get_device_name(), torch.__version__, GOALS, flush=True)
    for name in ["tune"] * options.tune + options.parts:
        print(f"== {name} at {deadline.elapsed():.0f} s", flush=True)
        if not deadline.passed():
            with_report(parts[name])
    print(f"== done at {deadline.elapsed():.0f} s", flush=True)


if __name__ == "__main__":
    main()
