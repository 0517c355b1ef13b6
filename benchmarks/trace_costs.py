"""L. Cost of a trace: parts of a long map on demand, and recording a forward pass."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from benchmarks.memory import peak_bytes
from benchmarks.report import Report, megabytes, ms
from benchmarks.timing import CpuTimer, Entry, median, time_interleaved
from softlook.blocks import AttentionCore
from softlook.lens import AttentionTrace, Trace, trace
from softlook.models import GPT, GPTConfig
from softlook.ops.masks import causal

OVERVIEW_MS, TILE_MS, SLOWDOWN, MEMORY = 50, 5, 1.5, 1 << 30
"""Goals: milliseconds of an overview and of a tile, time of a traced relative to a plain forward pass, and bytes."""


@dataclass(frozen=True)
class Sizes:
    """Lengths of the map and of the traced text, and the traced model."""

    keys: int = 32768
    head_dim: int = 64
    tokens: int = 8192
    depth: int = 12
    heads: int = 12
    vocab_size: int = 1000


def measure(report: Report, quick: bool) -> None:
    sizes = Sizes(keys=2048, tokens=256, depth=2, heads=2) if quick else Sizes()
    with torch.no_grad():
        _parts(report, sizes)
        _recording(report, sizes, rounds=2)


def _parts(report: Report, sizes: Sizes) -> None:
    report.section(
        "L. parts of one head's map",
        f"One causal head of width {sizes.head_dim}, {sizes.keys} queries and keys, float32. The log-sum-exp of each "
        "query is computed once; every part then follows from queries, keys and log-sum-exp alone.",
    )
    layer, lse_seconds, forward_seconds = _long_map(sizes)
    row, column = sizes.keys // 512, sizes.keys // 1024
    entries = {
        "overview 1024 x 1024, strided": lambda: layer.overview(size=1024, pool=None),
        "tile 256 x 256": lambda: layer.tile(0, row, column),
        "tile of cells of 2 x 2, max": lambda: layer.tile(1, row // 2, column // 2),
        "tile of cells of 8 x 8, max": lambda: layer.tile(3, row // 8, column // 8),
        "tile of cells of 8 x 8, mean": lambda: layer.tile(3, row // 8, column // 8, pool="mean"),
        "one row": lambda: layer.weights(rows=slice(-1, None)),
    }
    calls = [Entry(name, call) for name, call in entries.items()]
    for entry in calls:
        entry.call()
    samples = time_interleaved(calls, CpuTimer(), budget=20, min_rounds=15)
    table = report.table("part", "ms")
    for name, values in samples.items():
        table.add(name, ms(median(values)))
    table.add("log-sum-exp of all queries, once", ms(lse_seconds))
    table.add("fused forward pass, for comparison", ms(forward_seconds))
    overview, tile = (median(samples[calls[index].name]) * 1e3 for index in (0, 1))
    report.summarize(f"one head, {sizes.keys} keys: overview in {overview:.1f} ms (goal: {OVERVIEW_MS})")
    report.summarize(f"one head, {sizes.keys} keys: 256 x 256 tile in {tile:.2f} ms (goal: {TILE_MS})")


def _long_map(sizes: Sizes) -> tuple[AttentionTrace, float, float]:
    """A traced layer whose log-sum-exp is known, and the seconds that this and the forward pass took."""
    core, timer = AttentionCore(), CpuTimer()
    query, key, value = torch.randn(3, 1, 1, sizes.keys, sizes.head_dim)
    forward = timer.once(Entry("forward", lambda: core(query, key, value, causal())))
    with trace(nn.ModuleDict({"core": core})) as recorded:
        core(query, key, value, causal())
    layer = recorded["core"]
    return layer, timer.once(Entry("lse", lambda: layer.lse)), forward


def _recording(report: Report, sizes: Sizes, rounds: int) -> None:
    width = 64 * sizes.heads
    report.section(
        "L. tracing a forward pass",
        f"A GPT with {sizes.depth} layers of {sizes.heads} heads, width {width} and a vocabulary of "
        f"{sizes.vocab_size}; one text of {sizes.tokens} tokens. MiB: peak memory of the call without the model, with "
        "the trace itself.",
    )
    config = GPTConfig(
        vocab_size=sizes.vocab_size, context=sizes.tokens, dim=width, depth=sizes.depth, heads=sizes.heads
    )
    model, ids = GPT(config).eval(), torch.randint(sizes.vocab_size, (1, sizes.tokens))

    def traced(dtype: torch.dtype | None) -> Callable[[], Trace]:
        def run() -> Trace:
            with torch.no_grad(), trace(model, dtype=dtype) as recorded:
                model(ids)
            return recorded

        return run

    def plain() -> torch.Tensor:
        with torch.no_grad():
            return model(ids)

    calls: dict[str, Callable[[], object]] = {
        "plain forward": plain,
        "traced": traced(None),
        "traced, float16": traced(torch.float16),
    }
    samples = time_interleaved([Entry(*item) for item in calls.items()], CpuTimer(), budget=0, min_rounds=rounds)
    memory = {name: peak_bytes(call, "cpu") for name, call in calls.items()}
    table = report.table("call", "ms", "x plain", "MiB", "MiB above plain")
    base, least = median(samples["plain forward"]), memory["plain forward"]
    for name, values in samples.items():
        table.add(
            name, ms(median(values)), median(values) / base, megabytes(memory[name]), megabytes(memory[name] - least)
        )
    slowdown, above = median(samples["traced"]) / base, memory["traced"] - least
    shape = f"{sizes.depth} x {sizes.heads} heads, {sizes.tokens} tokens"
    report.summarize(f"{shape}: {slowdown:.2f} x the plain forward pass (goal: {SLOWDOWN})")
    report.summarize(f"{shape}: {megabytes(above)} MiB above the plain forward pass (goal: {megabytes(MEMORY)})")
