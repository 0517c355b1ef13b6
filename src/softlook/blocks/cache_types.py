"""KV caches: static, sliding window, quantized to int8."""

import torch
from torch import Tensor

from softlook.base.errors import ConfigError, ShapeError
from softlook.blocks.kv_cache import MIN_SPARE, CrossKVCache, KeyValue, check_crop, empty_like, grow, select_rows

INT8_MAX = 127
"""The largest value of a symmetric int8 code."""


class StaticCache(CrossKVCache):
    """A KV cache of fixed capacity, written in place.

    With `at`, a tensor with the indices of the next positions, every step is the same operations on the same memory, as
    CUDA graphs require: `update` returns all positions, and the caller masks those not written yet and passes the
    positions to the model.

    >>> cache, key = StaticCache(4), torch.randn(1, 2, 1, 8)
    >>> [cache.update(key, key)[0].shape[2] for _ in range(3)]
    [1, 2, 3]
    """

    def __init__(self, capacity: int, at: Tensor | None = None) -> None:
        if capacity < 1:
            raise ConfigError(f"the capacity of a cache must be at least 1, got {capacity}")
        self.capacity, self.at, self.length = capacity, at, 0
        self.buffer: KeyValue | None = None

    def update(self, key: Tensor, value: Tensor) -> KeyValue:
        if self.buffer is None:
            self.buffer = empty_like(key, self.capacity), empty_like(value, self.capacity)
        if self.at is not None:
            self.buffer[0].index_copy_(2, self.at, key)
            self.buffer[1].index_copy_(2, self.at, value)
            return self.buffer
        start, stop = self.length, self.length + key.shape[2]
        if stop > self.capacity:
            raise ShapeError(
                f"a cache of capacity {self.capacity} cannot hold {stop} positions. Use a larger capacity."
            )
        self.buffer[0][:, :, start:stop], self.buffer[1][:, :, start:stop], self.length = key, value, stop
        return self.buffer[0][:, :, :stop], self.buffer[1][:, :, :stop]

    def reorder_beams(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """If the number of rows stays the same, only the rows that change are written, in place."""
        if self.buffer is not None and len(rows) == len(self.buffer[0]):
            moved = (rows != torch.arange(len(rows), device=rows.device)).nonzero()[:, 0]
            used = self.length if self.at is None else self.capacity
            for kv in self.buffer:
                kv[moved, :, :used] = kv[rows[moved], :, :used]
        else:
            self.buffer = select_rows(self.buffer, rows)
        self.cross = select_rows(self.cross, sources)

    def crop(self, count: int) -> None:
        check_crop(count, self.length)
        self.length -= count


class SlidingWindowCache(CrossKVCache):
    """A KV cache that keeps only the last `window` positions, for models with sliding-window attention.

    >>> cache, key = SlidingWindowCache(3), torch.randn(1, 2, 1, 8)
    >>> [cache.update(key, key)[0].shape[2] for _ in range(5)], cache.length
    ([1, 2, 3, 3, 3], 5)
    """

    def __init__(self, window: int) -> None:
        if window < 1:
            raise ConfigError(f"a window must be at least 1 (the token itself), got {window}")
        self.window, self.length, self.start, self.stop = window, 0, 0, 0
        self.buffer: KeyValue | None = None
        """The positions from `start` to `stop` are visible."""

    def update(self, key: Tensor, value: Tensor) -> KeyValue:
        new = key.shape[2]
        if self.buffer is None or self.stop + new > self.buffer[0].shape[2]:
            self._reallocate(key, value)
        assert self.buffer is not None
        first, last = self.stop, self.stop + new
        self.buffer[0][:, :, first:last], self.buffer[1][:, :, first:last] = key, value
        visible = slice(max(self.start, first - self.window + 1), last)
        self.start, self.stop, self.length = max(self.start, last - self.window + 1), last, self.length + new
        return self.buffer[0][:, :, visible], self.buffer[1][:, :, visible]

    def reorder_beams(self, rows: Tensor, sources: Tensor | None = None) -> None:
        self.buffer, self.cross = select_rows(self.buffer, rows), select_rows(self.cross, sources)

    def crop(self, count: int) -> None:
        """Possible only while no position that would become visible again has left the window."""
        check_crop(count, self.length)
        held, needed = self.stop - self.start - count, min(self.window - 1, self.length - count)
        if held < needed:
            raise ShapeError(f"cannot crop {count} positions: the positions before them have left the window")
        self.stop, self.length = self.stop - count, self.length - count

    def _reallocate(self, key: Tensor, value: Tensor) -> None:
        """Move the visible positions to the front of a buffer with space for another window."""
        held = self.stop - self.start
        capacity = held + key.shape[2] + self.window
        buffer = empty_like(key, capacity), empty_like(value, capacity)
        for new, old in zip(buffer, self.buffer or (), strict=False):
            new[:, :, :held] = old[:, :, self.start : self.stop]
        self.buffer, self.start, self.stop = buffer, 0, held


class QuantizedCache(CrossKVCache):
    """A KV cache in int8 with one scale per head and token: about a quarter of the memory of float32.

    The error of each element is at most 1/254 of the largest element of its head and token.

    >>> cache, key = QuantizedCache(), torch.randn(1, 2, 3, 8)
    >>> dequantized, _ = cache.update(key, key)
    >>> bool(((dequantized - key).abs() <= key.abs().amax(-1, keepdim=True) / 253).all())
    True
    """

    def __init__(self) -> None:
        self.length = 0
        self.buffers: list[Tensor] = []
        """int8 keys, their scales, int8 values, their scales, with spare capacity."""

    def update(self, key: Tensor, value: Tensor) -> KeyValue:
        new = (*quantize_int8(key), *quantize_int8(value))
        start, stop = self.length, self.length + key.shape[2]
        if not self.buffers:
            self.buffers = [tensor[:, :, :0] for tensor in new]
        if stop > self.buffers[0].shape[2]:
            self.buffers = [grow(buffer, start, stop + max(stop // 2, MIN_SPARE)) for buffer in self.buffers]
        for buffer, added in zip(self.buffers, new, strict=True):
            buffer[:, :, start:stop] = added
        self.length = stop
        int8_key, key_scale, int8_value, value_scale = (buffer[:, :, :stop] for buffer in self.buffers)
        return int8_key * key_scale, int8_value * value_scale

    def reorder_beams(self, rows: Tensor, sources: Tensor | None = None) -> None:
        self.buffers = [buffer.index_select(0, rows) for buffer in self.buffers]
        self.cross = select_rows(self.cross, sources)

    def crop(self, count: int) -> None:
        check_crop(count, self.length)
        self.length -= count


def quantize_int8(x: Tensor) -> tuple[Tensor, Tensor]:
    """Symmetric int8 codes of each vector, from -127 to 127, and the scale to multiply them with.

    >>> quantize_int8(torch.tensor([0.5, -1.0]))[0]
    tensor([  64, -127], dtype=torch.int8)
    """
    scale = x.abs().amax(-1, keepdim=True) / INT8_MAX
    return (x / scale.clamp(min=torch.finfo(scale.dtype).tiny)).round().to(torch.int8), scale
