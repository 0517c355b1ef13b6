"""Other ways to keep the past: in a place made beforehand, only the last of it, or in one byte a number."""

import torch
from torch import Tensor

from softlook.base.errors import ConfigError, ShapeError
from softlook.blocks.memory import KeyValue, Recalling, check_forgetting, picked

STEPS = 127
"""How many steps a byte has on each side of zero."""
SPARE = 32
"""Positions that a new buffer has beyond those in use."""


class Static(Recalling):
    """A place made for so many positions at once, and written into: nothing is moved when a word comes.

    With `at`, a tensor that says where the next positions go, every word is the same few operations on the same
    places, as captured graphs want them: all places are given back, the caller hides those not written yet with a
    mask, and tells the model its positions.

    >>> memory, key = Static(4), torch.randn(1, 2, 1, 8)
    >>> [memory.extend(key, key)[0].shape[2] for _ in range(3)]
    [1, 2, 3]
    """

    def __init__(self, capacity: int, at: Tensor | None = None) -> None:
        if capacity < 1:
            raise ConfigError(f"a memory wants room for at least one position; {capacity} came")
        self.capacity, self.at, self.length = capacity, at, 0
        self.both: KeyValue | None = None

    def extend(self, key: Tensor, value: Tensor) -> KeyValue:
        if self.both is None:
            self.both = empty_like(key, self.capacity), empty_like(value, self.capacity)
        if self.at is not None:
            self.both[0].index_copy_(2, self.at, key)
            self.both[1].index_copy_(2, self.at, value)
            return self.both
        start, stop = self.length, self.length + key.shape[2]
        if stop > self.capacity:
            raise ShapeError(f"a memory made for {self.capacity} positions cannot hold {stop}. Make it larger")
        self.both[0][:, :, start:stop], self.both[1][:, :, start:stop], self.length = key, value, stop
        return self.both[0][:, :, :stop], self.both[1][:, :, :stop]

    def follow(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """Where there are as many rows as before, only those that change are written, and all stay where they are."""
        if self.both is not None and len(rows) == len(self.both[0]):
            moved = (rows != torch.arange(len(rows), device=rows.device)).nonzero()[:, 0]
            used = self.length if self.at is None else self.capacity
            for kept in self.both:
                kept[moved, :, :used] = kept[rows[moved], :, :used]
        else:
            self.both = picked(self.both, rows)
        self.other = picked(self.other, sources)

    def forget(self, count: int) -> None:
        check_forgetting(count, self.length)
        self.length -= count


class Sliding(Recalling):
    """Only what a window of so many positions, one's own included, can still see. For models that look through one.

    >>> memory, key = Sliding(3), torch.randn(1, 2, 1, 8)
    >>> [memory.extend(key, key)[0].shape[2] for _ in range(5)], memory.length
    ([1, 2, 3, 3, 3], 5)
    """

    def __init__(self, window: int) -> None:
        if window < 1:
            raise ConfigError(f"a window of {window} tokens, oneself included, has no room for oneself")
        self.window, self.length, self.start, self.stop = window, 0, 0, 0
        self.both: KeyValue | None = None
        """What may still be seen stands from `start` to `stop`."""

    def extend(self, key: Tensor, value: Tensor) -> KeyValue:
        new = key.shape[2]
        if self.both is None or self.stop + new > self.both[0].shape[2]:
            self._move(key, value)
        assert self.both is not None
        first, last = self.stop, self.stop + new
        self.both[0][:, :, first:last], self.both[1][:, :, first:last] = key, value
        seen = slice(max(self.start, first - self.window + 1), last)
        self.start, self.stop, self.length = max(self.start, last - self.window + 1), last, self.length + new
        return self.both[0][:, :, seen], self.both[1][:, :, seen]

    def follow(self, rows: Tensor, sources: Tensor | None = None) -> None:
        self.both, self.other = picked(self.both, rows), picked(self.other, sources)

    def forget(self, count: int) -> None:
        """Only as long as nothing has slid out of the window that would be seen again."""
        check_forgetting(count, self.length)
        held, wanted = self.stop - self.start - count, min(self.window - 1, self.length - count)
        if held < wanted:
            raise ShapeError(f"{count} positions cannot be forgotten: what was before them has slid out of the window")
        self.stop, self.length = self.stop - count, self.length - count

    def _move(self, key: Tensor, value: Tensor) -> None:
        """What may still be seen, to the front of a buffer with room for as much again."""
        held = self.stop - self.start
        room = held + key.shape[2] + self.window
        made = empty_like(key, room), empty_like(value, room)
        for new, old in zip(made, self.both or (), strict=False):
            new[:, :, :held] = old[:, :, self.start : self.stop]
        self.both, self.start, self.stop = made, 0, held


class Quantised(Recalling):
    """Keys and values in one byte a number, with a scale for each head and token: about a quarter of the memory.

    No number is off by more than 1/254 of the largest of its head and token.

    >>> memory, key = Quantised(), torch.randn(1, 2, 3, 8)
    >>> kept, _ = memory.extend(key, key)
    >>> bool(((kept - key).abs() <= key.abs().amax(-1, keepdim=True) / 253).all())
    True
    """

    def __init__(self) -> None:
        self.length = 0
        self.parts: tuple[Tensor, Tensor, Tensor, Tensor] | None = None
        """Keys as bytes, their scales, values as bytes, their scales: room for more than came."""

    def extend(self, key: Tensor, value: Tensor) -> KeyValue:
        new = (*as_bytes(key), *as_bytes(value))
        start, stop = self.length, self.length + key.shape[2]
        if self.parts is None or stop > self.parts[0].shape[2]:
            self._make_room(new, stop + max(stop // 2, SPARE))
        assert self.parts is not None
        for kept, added in zip(self.parts, new, strict=True):
            kept[:, :, start:stop] = added
        self.length = stop
        bytes_key, key_scale, bytes_value, value_scale = (part[:, :, :stop] for part in self.parts)
        return bytes_key * key_scale, bytes_value * value_scale

    def follow(self, rows: Tensor, sources: Tensor | None = None) -> None:
        if self.parts is not None:
            key, key_scale, value, value_scale = (part.index_select(0, rows) for part in self.parts)
            self.parts = key, key_scale, value, value_scale
        self.other = picked(self.other, sources)

    def forget(self, count: int) -> None:
        check_forgetting(count, self.length)
        self.length -= count

    def _make_room(self, like: tuple[Tensor, ...], columns: int) -> None:
        key, key_scale, value, value_scale = (empty_like(part, columns) for part in like)
        made = key, key_scale, value, value_scale
        for new, old in zip(made, self.parts or (), strict=False):
            new[:, :, : self.length] = old[:, :, : self.length]
        self.parts = made


def as_bytes(numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Each vector as whole numbers from -127 to 127 and what to multiply them with.

    >>> as_bytes(torch.tensor([0.5, -1.0]))[0]
    tensor([  64, -127], dtype=torch.int8)
    """
    scale = numbers.abs().amax(-1, keepdim=True) / STEPS
    return (numbers / scale.clamp(min=torch.finfo(scale.dtype).tiny)).round().to(torch.int8), scale


def empty_like(kept: Tensor, positions: int) -> Tensor:
    """Zeros for so many positions of such keys or values."""
    return kept.new_zeros(*kept.shape[:2], positions, kept.shape[3])
