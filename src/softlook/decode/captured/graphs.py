"""Work that a GPU does again by itself: recorded once, and then started with a single call."""

from collections.abc import Callable
from typing import Any

import torch

Made = Any
"""What the work makes: tensors that are written anew each time."""


class Graph:
    """Some work that is always the same on the same places. It is done when first called, then recorded.

    What it makes lies in the same place each time from the second call on. Where there is no GPU it is simply done.
    Graphs that never run at the same time may share a `pool` of memory for what lies between.

    >>> count = torch.zeros(1)
    >>> graph = Graph(lambda: count.add_(1), torch.device("cpu"))
    >>> graph(), graph()
    (tensor([2.]), tensor([2.]))
    """

    def __init__(self, work: Callable[[], Made], device: torch.device, pool: Any = None) -> None:
        self.work, self.device, self.pool = work, device, pool
        self.recorded: torch.cuda.CUDAGraph | None = None
        self.made: Made = None

    def __call__(self) -> Made:
        if self.recorded is not None:
            self.recorded.replay()
            return self.made
        made = self.work()  # it also warms up: kernels are compiled and libraries loaded, which cannot be recorded
        if self.device.type == "cuda":
            self._record()
        return made

    def _record(self) -> None:
        graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream(self.device)
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):
            graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
            try:
                self.made = self.work()
            finally:
                graph.capture_end()
        torch.cuda.current_stream(self.device).wait_stream(side)
        self.recorded = graph
