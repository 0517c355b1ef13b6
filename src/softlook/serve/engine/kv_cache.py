"""Ragged KV cache of a running batch, and its memory budget.

All rows of the cache end at the same column, so that one step writes one column and causal masks and windows stay
correct: they count back from the last key. Columns before the start of a row are masked and hold zeros: a masked value
is still multiplied by 0, and 0 times a leftover NaN would be NaN. The used columns move to the right through a buffer;
when they reach its end, or a longer row is added, they are copied into a new buffer.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from softlook.base.errors import ShapeError
from softlook.blocks.kv_cache import DynamicCache, KeyValue, KVCache, LayerCache

SPARE_COLUMNS = 32
"""Minimum number of unused columns in a new buffer."""
NO_REORDER = "rows of a ragged KV cache are added and removed one by one: they cannot be reordered or cropped"
MEMORY_FRACTION = {"cuda": 0.6, "cpu": 0.25}
"""Fraction of the free memory used for KV caches. Activations, and other processes on a CPU, need the rest."""
MIN_CACHE_BYTES = 1 << 28
"""Bytes for KV caches, even if less memory is free."""


class RaggedKVCache(KVCache):
    """KV cache of a batch whose rows have different lengths, and are added and removed at any step.

    >>> import torch
    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=2, heads=2)).eval()
    >>> prefilled, cache = KVCache(), RaggedKVCache()
    >>> _ = model(torch.tensor([[3, 1, 4]]), cache=prefilled)
    >>> cache.add_rows(prefilled, [3])
    >>> cache.lengths, cache.width
    ([3], 3)
    """

    def __init__(self) -> None:
        super().__init__()
        self.ragged_layers: list[RaggedLayerCache] = []
        self.lengths: list[int] = []
        """Number of positions of each row."""
        self.max_lengths: list[int] = []
        """Maximum number of positions each row will have."""
        self.end = self.columns = self.rows = 0
        """The column after the last used one; allocated columns; allocated rows."""

    @property
    def width(self) -> int:
        """Number of visible columns."""
        return max(self.lengths, default=0)

    @property
    def length(self) -> int:
        return self.width

    def allocate(self, depth: int) -> list[LayerCache]:
        return list(self.ragged_layers[:depth])

    def add_rows(self, cache: KVCache, lengths: Sequence[int], max_lengths: Sequence[int] | None = None) -> None:
        """Take over the left-padded rows of a prefilled cache; `lengths` counts the positions of each without padding.

        `max_lengths` bounds the final length of each row, and thereby the allocation. Default: twice its length.
        """
        held = [layer.kv for layer in cache.layers if isinstance(layer, DynamicCache) and layer.kv is not None]
        if not self.ragged_layers:
            self.ragged_layers = [RaggedLayerCache(self, like) for like in held]
        before, longest = len(self.lengths), max(lengths)
        self.max_lengths.extend([2 * length for length in lengths] if max_lengths is None else max_lengths)
        if before + len(lengths) > self.rows or longest > self.end:
            self._reallocate(before + len(lengths), max(self.width, longest))
        self.lengths.extend(lengths)
        for layer, new in zip(self.ragged_layers, held, strict=True):
            layer.write_rows(new, before, lengths)

    def advance(self) -> None:
        """Make room for one more position in each row. Call it before each forward pass."""
        rows = len(self.lengths)
        needed = allocated_positions(rows, max(self.width, *self.max_lengths))
        if self.end == self.columns or 2 * needed < self.rows * self.columns:
            self._reallocate(rows, self.width)
        self.end += 1
        self.lengths = [length + 1 for length in self.lengths]

    def remove_row(self, row: int) -> None:
        """Remove a row; the last row takes its index. An empty cache holds no memory."""
        last = len(self.lengths) - 1
        for layer in self.ragged_layers:
            layer.remove_row(row, last)
        for lengths in (self.lengths, self.max_lengths):
            lengths[row] = lengths[last]
            lengths.pop()
        if not self.lengths:
            self.ragged_layers, self.end, self.columns, self.rows = [], 0, 0, 0

    def reorder(self, rows: Tensor) -> None:
        raise ShapeError(NO_REORDER)

    def crop(self, count: int) -> None:
        raise ShapeError(NO_REORDER)

    def _reallocate(self, rows: int, width: int) -> None:
        """Copy into new buffers with some spare rows and columns."""
        old_end, self.rows = self.end, rows + rows // 4
        spare = max(SPARE_COLUMNS, min(width // 2, max(self.max_lengths) - width))
        self.columns, self.end = width + spare, width
        for layer in self.ragged_layers:
            layer.reallocate(old_end)


class RaggedLayerCache:
    """Keys and values of one layer of a `RaggedKVCache`."""

    def __init__(self, cache: RaggedKVCache, like: KeyValue) -> None:
        self.cache, self.key_value = cache, (like[0][:0, :, :0], like[1][:0, :, :0])

    @property
    def length(self) -> int:
        return self.cache.width

    def update(self, key: Tensor, value: Tensor) -> KeyValue:
        rows, end, width = len(self.cache.lengths), self.cache.end, self.cache.width
        if key.shape[0] != rows or key.shape[2] != 1:
            raise ShapeError(f"expected one new position for {rows} rows, got {key.shape[2]} for {key.shape[0]}")
        for buffer, new in zip(self.key_value, (key, value), strict=True):
            buffer[:rows, :, end - 1 : end] = new
        return self.key_value[0][:rows, :, end - width : end], self.key_value[1][:rows, :, end - width : end]

    def cross_kv(self, make: Callable[[], KeyValue]) -> KeyValue:
        raise ShapeError("a ragged KV cache is for decoder-only models: it has no cross-attention")

    def reorder(self, rows: Tensor) -> None:
        raise ShapeError(NO_REORDER)

    def crop(self, count: int) -> None:
        raise ShapeError(NO_REORDER)

    def write_rows(self, new: KeyValue, row: int, lengths: Sequence[int]) -> None:
        """Write new rows, starting at index `row`."""
        end, longest = self.cache.end, max(lengths)
        for buffer, added in zip(self.key_value, new, strict=True):
            buffer[row : row + len(added), :, end - longest : end] = added[:, :, added.shape[2] - longest :]
            for index, length in enumerate(lengths, row):
                buffer[index, :, end - longest : end - length] = 0

    def remove_row(self, row: int, last: int) -> None:
        """Copy the last row over `row`, including its leading zeros, and clear the last row."""
        used = slice(0, self.cache.end)
        for buffer in self.key_value:
            if row != last:
                buffer[row, :, used] = buffer[last, :, used]
            buffer[last, :, used] = 0

    def reallocate(self, old_end: int) -> None:
        """Copy into a new buffer: what ended at column `old_end` now ends at the cache's end."""
        rows, width, end = len(self.cache.lengths), self.cache.width, self.cache.end
        buffers = []
        for old in self.key_value:
            new = old.new_zeros(self.cache.rows, old.shape[1], self.cache.columns, old.shape[3])
            new[:rows, :, end - width : end] = old[:rows, :, old_end - width : old_end]
            buffers.append(new)
        self.key_value = (buffers[0], buffers[1])


def allocated_positions(rows: int, max_length: int) -> int:
    """Upper bound on the cache positions allocated for so many rows of at most `max_length` positions."""
    return (rows + rows // 4) * (max_length + SPARE_COLUMNS)


class AdmissionPlan:
    """Assigns new requests to batches, and counts the cache positions all batches then occupy.

    Rows of a batch are as wide as its longest. A request that would make a batch too wide gets a batch of its own, so
    that a long request next to short ones is charged only for itself.

    >>> plan = AdmissionPlan(10_000, [([500] * 4, 0)])
    >>> plan.add(500), plan.add(5000), plan.used
    (0, 1, 8224)
    """

    def __init__(self, budget: int, batches: Sequence[tuple[Sequence[int], int]], joinable: int | None = None) -> None:
        """`batches`: the lengths of the rows of each batch, and its allocated positions. The first `joinable` accept
        new requests.
        """
        self.budget = budget
        self.sizes = [(len(lengths), max(lengths, default=0), allocated) for lengths, allocated in batches]
        """Of each batch: rows, maximum length, allocated positions."""
        self.open_batches = list(range(len(batches) if joinable is None else joinable))
        self.used = sum(_batch_positions(*size) for size in self.sizes)
        """Cache positions of all batches."""

    def add(self, length: int) -> int:
        """Index of the open batch that a request of this length joins; a new batch if it fits into none."""
        for number, batch in enumerate(self.open_batches):
            rows, longest, allocated = self.sizes[batch]
            larger = (rows + 1, max(longest, length), allocated)
            extra = _batch_positions(*larger) - _batch_positions(rows, longest, allocated)
            if not rows or self.used + extra <= self.budget:
                self.sizes[batch] = larger
                self.used += extra
                return number
        self.open_batches.append(len(self.sizes))
        self.sizes.append((1, length, 0))
        self.used += _batch_positions(1, length, 0)
        return len(self.open_batches) - 1


def _batch_positions(rows: int, longest: int, allocated: int) -> int:
    """Cache positions of a batch, at least those already allocated."""
    return max(allocated_positions(rows, longest), allocated)


def cache_capacity(model: Any, gib: float | None = None, num_models: int = 1) -> int:
    """Positions the KV cache of a model may hold: within `gib` GiB, or within its share of the free memory."""
    size = int(gib * 2**30) if gib is not None else _available_bytes(next(model.parameters()).device) // num_models
    return max(size // bytes_per_position(model), 1)


def bytes_per_position(model: Any) -> int:
    """Approximate size of the keys and values of one token."""
    config = model.config
    depth, heads = getattr(config, "depth", 1), getattr(config, "heads", 1)
    head_dim = getattr(config, "head_dim", None) or config.dim / heads
    kv_heads = getattr(config, "kv_heads", None) or heads
    tensors = 2 if getattr(model, "mode", None) == "decoder-only" else 4  # encoder-decoders cache cross-attention too
    return max(int(tensors * depth * kv_heads * head_dim * next(model.parameters()).element_size()), 1)


def _available_bytes(device: torch.device) -> int:
    """Bytes for KV caches on a device."""
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else _free_memory()
    return max(int(MEMORY_FRACTION.get(device.type, MEMORY_FRACTION["cpu"]) * free), MIN_CACHE_BYTES)


def _free_memory() -> int:
    """Bytes this process may still allocate, on the machine and in its container."""
    limits: list[int] = []
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        limits.append(int(next(line for line in lines if line.startswith("MemAvailable")).split()[1]) * 1024)
    with suppress(OSError, ValueError):  # "max" is not a number: unlimited
        group = Path("/sys/fs/cgroup")
        limits.append(int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))
    if not limits:
        with suppress(OSError, ValueError, AttributeError):
            limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
    return max(min(limits, default=2**33), 0)
