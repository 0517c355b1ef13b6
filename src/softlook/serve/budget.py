"""How much memory the KV caches of requests under way may take, and how much each request really takes."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from softlook.serve.slots import allocated

SHARE = {"cuda": 0.6, "cpu": 0.25}
"""Of the memory that is free beside the weights: for KV caches. Activations, and others on a CPU, need the rest."""
LEAST = 1 << 28
"""Bytes for KV caches, however little is free."""


class Plan:
    """Which batch each new request joins, and the cache positions that all batches then take up.

    Rows of a batch are as wide as its longest. One that would make a batch too wide for what there is gets a batch of
    its own, so that a long request beside short ones is charged for itself alone.

    >>> plan = Plan(10_000, [([500] * 4, 0)])
    >>> plan.add(500), plan.add(5000), plan.used
    (0, 1, 8224)
    """

    def __init__(self, room: int, batches: Sequence[tuple[Sequence[int], int]], joinable: int | None = None) -> None:
        """`batches`: of each the positions of its rows, and those it holds now. The first `joinable` may be joined."""
        self.room = room
        self.sizes = [(len(rows), max(rows, default=0), held) for rows, held in batches]
        """Of each batch: its rows, the positions of the longest, and those that are allocated already."""
        self.joined = list(range(len(batches) if joinable is None else joinable))
        self.used = sum(_cost(*size) for size in self.sizes)
        """Cache positions of all batches."""

    def add(self, places: int) -> int:
        """The number of the batch, among those that may be joined; a new one, where it would be one too many."""
        for number, batch in enumerate(self.joined):
            rows, longest, held = self.sizes[batch]
            larger = (rows + 1, max(longest, places), held)
            more = _cost(*larger) - _cost(rows, longest, held)
            if not rows or self.used + more <= self.room:
                self.sizes[batch] = larger
                self.used += more
                return number
        self.joined.append(len(self.sizes))
        self.sizes.append((1, places, 0))
        self.used += _cost(1, places, 0)
        return len(self.joined) - 1


def _cost(rows: int, longest: int, held: int) -> int:
    """Cache positions of a batch: not fewer than it holds already."""
    return max(allocated(rows, longest), held)


def cache_positions(model: Any, gib: float | None = None, models: int = 1) -> int:
    """Positions that the KV cache of a model may hold: of so many GiB, or of its share of what is free.

    `models` share a device.
    """
    size = int(gib * 2**30) if gib is not None else _available(next(model.parameters()).device) // models
    return max(size // bytes_per_position(model), 1)


def bytes_per_position(model: Any) -> int:
    """What a model keeps of one token of one sequence, about."""
    config = model.config
    depth, heads = getattr(config, "depth", 1), getattr(config, "heads", 1)
    width = getattr(config, "head_dim", None) or config.dim / heads
    kv_heads = getattr(config, "kv_heads", None) or heads
    both = 2 if getattr(model, "mode", None) == "decoder-only" else 4  # translators keep what they made of the source
    return max(int(both * depth * kv_heads * width * next(model.parameters()).element_size()), 1)


def _available(device: torch.device) -> int:
    """Bytes for KV caches on a device."""
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else _free_memory()
    return max(int(SHARE.get(device.type, SHARE["cpu"]) * free), LEAST)


def _free_memory() -> int:
    """Bytes that this process may still take: of the machine, and of the container it runs in."""
    found: list[int] = []
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        found.append(int(next(line for line in lines if line.startswith("MemAvailable")).split()[1]) * 1024)
    with suppress(OSError, ValueError):  # "max" is no number: no bound
        group = Path("/sys/fs/cgroup")
        found.append(int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))
    if not found:
        with suppress(OSError, ValueError, AttributeError):
            found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
    return max(min(found, default=2**33), 0)
