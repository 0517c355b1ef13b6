"""KV cache: keys and values of earlier positions, per layer."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from softlook.base.errors import ConfigError, ShapeError
from softlook.base.tensors import is_traced

KeyValue = tuple[Tensor, Tensor]
"""Keys and values of one layer, (B, G, S, D) each."""
MIN_SPARE = 32
"""Positions that a newly allocated buffer has at least beyond those in use."""


@runtime_checkable
class LayerCache(Protocol):
    """The KV cache of one layer."""

    @property
    def length(self) -> int:
        """Number of positions seen so far."""
        ...

    def update(self, key: Tensor, value: Tensor) -> KeyValue:
        """Append new keys and values; return all that may be attended to."""
        ...

    def cross_kv(self, make: Callable[[], KeyValue]) -> KeyValue:
        """Keys and values of the encoder's output for cross-attention: computed at the first call, then cached."""
        ...

    def reorder(self, rows: Tensor) -> None:
        """Select rows of the batch, in this order; a row may occur several times or not at all."""
        ...

    def crop(self, count: int) -> None:
        """Remove the last `count` positions; the keys and values of cross-attention stay."""
        ...


@runtime_checkable
class BeamLayer(LayerCache, Protocol):
    """The KV cache of one layer in which consecutive rows (beams) may share the keys and values of cross-attention."""

    def reorder_beams(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """Select these rows for self-attention, and these encoded sequences for cross-attention; None keeps all."""
        ...


class CrossKVCache(ABC):
    """Base of layer caches: caches the keys and values of cross-attention."""

    cross: KeyValue | None = None

    def cross_kv(self, make: Callable[[], KeyValue]) -> KeyValue:
        if self.cross is None:
            self.cross = make()
        return self.cross

    def reorder(self, rows: Tensor) -> None:
        self.reorder_beams(rows, rows)

    @abstractmethod
    def reorder_beams(self, rows: Tensor, sources: Tensor | None = None) -> None: ...


class DynamicCache(CrossKVCache):
    """A KV cache that grows as needed. Buffers grow by half their length, so appending a token copies only that token.

    While gradients are recorded or the computation is traced, nothing is written in place: tensors are concatenated.

    >>> cache = DynamicCache()
    >>> key = value = torch.randn(1, 2, 3, 4)
    >>> cache.update(key, value)[0].shape, cache.update(key, value)[0].shape
    (torch.Size([1, 2, 3, 4]), torch.Size([1, 2, 6, 4]))
    """

    def __init__(self) -> None:
        self.length = 0
        self.buffer: KeyValue | None = None
        """Keys and values, (B, G, capacity, D); only the first `length` positions are in use."""
        self.is_writable = False
        """Whether the buffer belongs to the cache: the tensors of the first update are kept, but not written to."""

    @property
    def kv(self) -> KeyValue | None:
        """The cached keys and values."""
        if self.buffer is None:
            return None
        return self.buffer[0][:, :, : self.length], self.buffer[1][:, :, : self.length]

    def update(self, key: Tensor, value: Tensor) -> KeyValue:
        start, self.length = self.length, self.length + key.shape[2]
        if self.buffer is None:
            self.buffer = key, value
            return self.buffer
        if key.shape[:2] != self.buffer[0].shape[:2]:
            self.length = start
            raise ShapeError(
                f"the cache holds keys of {tuple(self.buffer[0].shape[:2])} (batch, heads), "
                f"got {tuple(key.shape[:2])}. Use a new cache for another batch."
            )
        if is_traced(key, value) or (torch.is_grad_enabled() and (key.requires_grad or self.buffer[0].requires_grad)):
            old = self.buffer[0][:, :, :start], self.buffer[1][:, :, :start]
            self.buffer, self.is_writable = (torch.cat([old[0], key], 2), torch.cat([old[1], value], 2)), False
            return self.buffer
        if not self.is_writable or self.length > self.buffer[0].shape[2]:
            capacity = self.length + max(self.length // 2, MIN_SPARE)
            self.buffer = grow(self.buffer[0], start, capacity), grow(self.buffer[1], start, capacity)
            self.is_writable = True
        self.buffer[0][:, :, start : self.length], self.buffer[1][:, :, start : self.length] = key, value
        return self.buffer[0][:, :, : self.length], self.buffer[1][:, :, : self.length]

    def reorder_beams(self, rows: Tensor, sources: Tensor | None = None) -> None:
        self.buffer, self.cross = select_rows(self.buffer, rows), select_rows(self.cross, sources)

    def crop(self, count: int) -> None:
        check_crop(count, self.length)
        self.length -= count


class KVCache:
    """The KV cache of a model: one layer cache per layer, created on first use by `make`. The caller owns it.

    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=2, heads=2)).eval()
    >>> ids, cache = torch.tensor([[3, 1, 4]]), KVCache()
    >>> steps = [model(ids[:, t : t + 1], cache=cache) for t in range(3)]
    >>> torch.allclose(torch.cat(steps, 1), model(ids), atol=1e-5)
    True
    """

    def __init__(self, make: Callable[[], LayerCache] = DynamicCache) -> None:
        self.make = make
        self.layers: list[LayerCache] = []

    @property
    def length(self) -> int:
        """Number of positions seen so far, which is the position of the next token."""
        return self.layers[0].length if self.layers else 0

    def allocate(self, depth: int) -> list[LayerCache]:
        """The caches of the first `depth` layers; those that do not exist yet are created."""
        while len(self.layers) < depth:
            self.layers.append(self.make())
        return self.layers[:depth]

    def reorder(self, rows: Tensor) -> None:
        """Select rows of the batch, in this order: hypotheses that are kept, copied or dropped."""
        for layer in self.layers:
            layer.reorder(rows)

    def expand_beams(self, rows: Tensor, count: int) -> None:
        """Repeat each row `count` times, as in `rows`: 0, 0, 1, 1, ... for two beams. Cross-attention is not copied."""
        if count > 1:
            self.reorder_beams(rows)

    def reorder_beams(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """Select these rows for self-attention, and these encoded sequences for cross-attention; None keeps all."""
        for layer in self.layers:
            reorder_beams = getattr(layer, "reorder_beams", None)  # isinstance of a protocol is far slower
            if reorder_beams is None:
                raise ShapeError(f"beams of a {type(layer).__name__} cannot share keys and values of cross-attention")
            reorder_beams(rows, sources)

    def crop(self, count: int) -> None:
        """Remove the last `count` positions, such as rejected draft tokens."""
        for layer in self.layers:
            layer.crop(count)


def layer_caches(cache: KVCache | None, depth: int) -> list[LayerCache] | list[None]:
    """The cache of each layer; None for every layer without a cache."""
    return [None] * depth if cache is None else cache.allocate(depth)


def token_positions(ids: Tensor, positions: Tensor | None, cache: KVCache | None) -> Tensor:
    """Positions of the tokens: as given, (T,) or (B, T), or consecutive from the length of the cache on."""
    if positions is not None:
        return positions
    start = 0 if cache is None else cache.length
    return torch.arange(start, start + ids.shape[1], device=ids.device)


def with_cached_ids(ids: Tensor, cache: LayerCache | None) -> Tensor:
    """These token ids after the earlier ones, which the cache of a layer holds as keys.

    >>> cache = DynamicCache()
    >>> with_cached_ids(torch.tensor([[3, 1]]), cache), with_cached_ids(torch.tensor([[4]]), cache)
    (tensor([[3, 1]]), tensor([[3, 1, 4]]))
    """
    if cache is None:
        return ids
    new = ids[:, None, :, None].float()  # exact below 2^24
    return cache.update(new, new)[0][:, 0, :, 0].to(ids.dtype)


def check_cache(cache: KVCache | None, *, causal: bool) -> None:
    """Raise an error for a cache in a bidirectional model: new tokens would change the states of earlier ones."""
    if cache is not None and not causal:
        raise ConfigError(
            "a bidirectional model (causal=False) takes no KV cache and does not generate. "
            "Pass whole sequences, or use a causal model."
        )


def check_crop(count: int, length: int) -> None:
    if count > length:
        raise ShapeError(f"cannot crop {count} positions of a cache of length {length}")


def select_rows(kv: KeyValue | None, rows: Tensor | None) -> KeyValue | None:
    """These rows of keys and values; all of them, without a copy, if `rows` is None."""
    return kv if kv is None or rows is None else (kv[0].index_select(0, rows), kv[1].index_select(0, rows))


def grow(old: Tensor, used: int, capacity: int) -> Tensor:
    """A buffer of zeros for `capacity` positions, with the first `used` positions of `old`."""
    new = empty_like(old, capacity)
    new[:, :, :used] = old[:, :, :used]
    return new


def empty_like(kv: Tensor, positions: int) -> Tensor:
    """Zeros for so many positions of keys or values."""
    return kv.new_zeros(*kv.shape[:2], positions, kv.shape[3])
