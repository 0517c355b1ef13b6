"""Where the time of a captured beam search goes: by what the host does, by step, and by kernel."""

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

from softlook.decode import Translating
from softlook.decode.captured import beams
from softlook.decode.captured.beams import CapturedBeams
from softlook.decode.captured.board import Board
from softlook.decode.captured.graphs import Graph
from softlook.decode.captured.outcome import Outcome
from softlook.decode.captured.shelf import shelf_of
from softlook.decode.captured.speaker import Captured, parts_for
from softlook.decode.captured.step import scores

BEAM: Any = sys.modules["softlook.decode.beam"]
PARTS: dict[str, tuple[Any, str]] = {
    "encode": (Translating, "__init__"),
    "can it be captured": (BEAM, "why_not"),
    "plan and shelf": (Captured, "__init__"),
    "first word by the model": (Captured, "read"),
    "new places": (beams, "new_board"),
    "fill places": (Board, "begin"),
    "first word chosen": (CapturedBeams, "_first"),
    "steps": (CapturedBeams, "_several"),
    "capture": (Graph, "_record"),
    "those who are over leave": (CapturedBeams, "_leave"),
    "backwards, and to the host": (CapturedBeams, "_send"),
    "unpacking": (Outcome, "hypotheses"),
}
ROUNDS, AT = 10, 20
"""Steps that are timed, and the word at which they are."""


class Watch:
    """Seconds of each part, without those of the parts within it."""

    def __init__(self) -> None:
        self.spent, self.inner = defaultdict[str, float](float), [0.0]

    def watched(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **told: Any) -> Any:
            with self.timing(name):
                return call(*args, **told)

        return timed

    @contextmanager
    def timing(self, name: str) -> Iterator[None]:
        torch.cuda.synchronize()
        start = time.perf_counter()
        self.inner.append(0.0)
        try:
            yield
        finally:
            torch.cuda.synchronize()
            spent = time.perf_counter() - start
            self.spent[name] += spent - self.inner.pop()
            self.inner[-1] += spent


def parts_of(name: str, run: Callable[[], Any]) -> None:
    """A line for each part, every one waited for: together they take longer than when nobody waits."""
    watch = Watch()
    with ExitStack() as stack:
        for part, (owner, method) in PARTS.items():
            stack.enter_context(patch.object(owner, method, watch.watched(part, getattr(owner, method))))
        with watch.timing("the rest"):
            run()
    print(f"\n#### {name}: where the time goes\n\n| part | ms |\n|---|---|")
    for part in (*PARTS, "the rest"):
        if watch.spent[part]:
            print(f"| {part} | {1000 * watch.spent[part]:.1f} |")
    print(f"| together | {1000 * sum(watch.spent.values()):.1f} |", flush=True)


@torch.no_grad()
def steps_of(model: nn.Module) -> None:
    """One step of each size that was recorded, whole and without the choice of words."""
    shelf = shelf_of(model)
    print("\n#### one step\n\n| sequences | whole, ms | selection, ms |\n|---|---|---|")
    for board in shelf.boards:
        for sequences, graph in board.graphs.items():
            state, parts = board.first(sequences), parts_for(board.state.ids.device)
            asked = Graph(
                lambda state=state, parts=parts: scores(shelf.plan, parts, state), state.ids.device, board.pool
            )
            whole, alone = _time(graph, board), _time(asked, board)
            print(f"| {sequences} | {whole:.3f} | {whole - alone:.3f} |", flush=True)


def _time(graph: Graph, board: Board) -> float:
    """Milliseconds of one replay."""
    times = []
    for _ in range(ROUNDS + 2):
        board.state.past.at.fill_(AT)
        board.state.step.fill_(AT)
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times[2:])


def kernels_of(run: Callable[[], Any], most: int = 24) -> None:
    """The kernels of one call that take the longest."""
    from torch.profiler import ProfilerActivity, profile  # noqa: PLC0415  (loads what only this wants)

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        run()
        torch.cuda.synchronize()
    times, counts = defaultdict[str, float](float), Counter[str]()
    for event in seen.events() or ():
        if event.device_type.name == "CUDA":
            times[event.name] += event.time_range.elapsed_us()
            counts[event.name] += 1
    print(
        f"\n#### kernels: {sum(times.values()) / 1000:.1f} ms\n\n| kernel | times | ms | µs each |\n|---|---|---|---|"
    )
    for name, spent in sorted(times.items(), key=lambda pair: -pair[1])[:most]:
        print(f"| {name[:90]} | {counts[name]} | {spent / 1000:.2f} | {spent / counts[name]:.1f} |")
    print(flush=True)
