"""Profile of a beam search as CUDA graphs: by host function, by step and by kernel."""

import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from softlook.decode import Seq2SeqSession
from softlook.decode.cuda_graphs import beam_search as beams
from softlook.decode.cuda_graphs.beam_search import CudaGraphBeamSearch, ReceivedHypotheses
from softlook.decode.cuda_graphs.beam_workspace import BeamWorkspace
from softlook.decode.cuda_graphs.session import CudaGraphSession, graph_cache_for, ops_for
from softlook.decode.cuda_graphs.step import GraphedCallable, step_logits

BEAM: Any = sys.modules["softlook.decode.beam.search"]
PARTS: dict[str, tuple[Any, str]] = {
    "encode": (Seq2SeqSession, "__init__"),
    "check support": (BEAM, "graph_unsupported_reason"),
    "graph cache": (CudaGraphSession, "__init__"),
    "prefill": (CudaGraphSession, "prefill"),
    "allocate workspace": (beams, "allocate_workspace"),
    "copy prefill": (BeamWorkspace, "begin"),
    "first step": (CudaGraphBeamSearch, "_first_step"),
    "steps": (GraphedCallable, "__call__"),
    "capture": (GraphedCallable, "_capture"),
    "shrink batch": (CudaGraphBeamSearch, "_shrink"),
    "backtrace and copy to host": (CudaGraphBeamSearch, "_send"),
    "build hypotheses": (ReceivedHypotheses, "hypotheses"),
}
N_STEPS, POSITION = 10, 20
"""Number of timed steps, and their position."""


class PartTimer:
    """Exclusive seconds of each part."""

    def __init__(self) -> None:
        self.seconds, self.nested = defaultdict[str, float](float), [0.0]

    def wrap(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.timing(name):
                return call(*args, **kwargs)

        return timed

    @contextmanager
    def timing(self, name: str) -> Iterator[None]:
        torch.cuda.synchronize()
        start = time.perf_counter()
        self.nested.append(0.0)
        try:
            yield
        finally:
            torch.cuda.synchronize()
            spent = time.perf_counter() - start
            self.seconds[name] += spent - self.nested.pop()
            self.nested[-1] += spent


def print_parts(name: str, run: Callable[[], Any]) -> None:
    """Print the time of each part. Synchronizing after each makes the total longer than a normal run."""
    timer = PartTimer()
    with ExitStack() as stack:
        for part, (owner, method) in PARTS.items():
            stack.enter_context(patch.object(owner, method, timer.wrap(part, getattr(owner, method))))
        with timer.timing("other"):
            run()
    print(f"\n#### {name}: where the time goes\n\n| part | ms |\n|---|---|")
    for part in (*PARTS, "other"):
        if timer.seconds[part]:
            print(f"| {part} | {1000 * timer.seconds[part]:.1f} |")
    print(f"| total | {1000 * sum(timer.seconds.values()):.1f} |", flush=True)


@torch.no_grad()
def print_steps(model: nn.Module) -> None:
    """Print the time of one step of each captured size, in total and for token selection."""
    cache = graph_cache_for(model)
    print("\n#### one step\n\n| sequences | total, ms | selection, ms |\n|---|---|---|")
    for workspace in cache.workspaces:
        for sequences, graph in workspace.graphs.items():
            state, ops = workspace.first(sequences), ops_for(workspace.state.ids.device)
            logits = GraphedCallable(
                lambda state=state, ops=ops: step_logits(cache.weights, ops, state), state.ids.device, workspace.pool
            )
            total, without = _time(graph, workspace), _time(logits, workspace)
            print(f"| {sequences} | {total:.3f} | {total - without:.3f} |", flush=True)


def _time(graph: GraphedCallable, workspace: BeamWorkspace) -> float:
    """Milliseconds of one replay."""
    times = []
    for _ in range(N_STEPS + 2):
        workspace.state.positions.column.fill_(POSITION)
        workspace.state.step.fill_(POSITION)
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times[2:])


def print_kernels(run: Callable[[], Any], count: int = 24) -> None:
    """Print the slowest kernels of one call."""
    from torch.profiler import ProfilerActivity, profile  # noqa: PLC0415  (only needed here)

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        run()
        torch.cuda.synchronize()
    times, counts = defaultdict[str, float](float), Counter[str]()
    for event in profiler.events() or ():
        if event.device_type.name == "CUDA":
            times[event.name] += event.time_range.elapsed_us()
            counts[event.name] += 1
    print(
        f"\n#### kernels: {sum(times.values()) / 1000:.1f} ms\n\n| kernel | calls | ms | µs each |\n|---|---|---|---|"
    )
    for name, spent in sorted(times.items(), key=lambda pair: -pair[1])[:count]:
        print(f"| {name[:90]} | {counts[name]} | {spent / 1000:.2f} | {spent / counts[name]:.1f} |")
    print(flush=True)
