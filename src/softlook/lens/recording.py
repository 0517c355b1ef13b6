"""Recorded tensors: keys of a KV cache stored once, masks and biases that layers share stored once."""

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from softlook.base.errors import DtypeError
from softlook.base.tensors import map_tensors
from softlook.blocks.alignment import AdditiveScore
from softlook.blocks.attention import AttentionCore
from softlook.lens.attention_trace import AttentionCall
from softlook.ops.bias import Bias
from softlook.ops.masks import Mask

MIN_SPARE = 32
"""Positions that a buffer has at least beyond those in use, once keys are appended to it."""
TOLERANCE = 1e-3
"""Relative difference up to which keys are those of the same positions, computed in another batch."""


def copy_as(tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    """A copy in this dtype, or in its own; an error if a number exceeds the range of the dtype.

    >>> copy_as(torch.tensor([1e5]), torch.float16)
    Traceback (most recent call last):
    softlook.base.errors.DtypeError: a recorded tensor exceeds the range of torch.float16. Use torch.bfloat16, ...
    """
    if dtype is None or dtype == tensor.dtype or not tensor.is_floating_point():
        return tensor.clone()
    copy = tensor.to(dtype)
    if torch.finfo(dtype).max < torch.finfo(tensor.dtype).max and not torch.equal(copy.isfinite(), tensor.isfinite()):
        raise DtypeError(f"a recorded tensor exceeds the range of {dtype}. Use torch.bfloat16, or dtype=None.")
    return copy


class Copies:
    """Copies of tensors, shared by equal ones: a mask is often given to every layer.

    >>> copies, mask = Copies(), torch.ones(2, 2, dtype=torch.bool)
    >>> copies.copy(mask) is copies.copy(mask.clone())
    True
    """

    def __init__(self) -> None:
        self.latest: dict[tuple[Any, ...], Tensor] = {}

    def copy(self, tensor: Tensor) -> Tensor:
        """A copy that later writes to the tensor do not reach."""
        strides = tensor.stride()
        once = tensor.detach()[tuple(slice(0, 1 if stride == 0 else None) for stride in strides)]  # of an expanded one
        kind = (tensor.shape, once.shape, tensor.dtype, tensor.device)
        latest = self.latest.get(kind)
        if latest is None or not torch.equal(latest[tuple(slice(0, size) for size in once.shape)], once):
            latest = self.latest[kind] = once.clone().expand(tensor.shape)
        return latest


@dataclass(eq=False)
class Segment:
    """Consecutive calls that share their keys: (B, G, capacity, n) tensors, of which `stop` positions are in use."""

    buffers: list[Tensor]
    stop: int

    def views(self, start: int, stop: int) -> list[Tensor]:
        return [buffer[:, :, start:stop] for buffer in self.buffers]

    def extend(self, tensors: list[Tensor], count: int) -> None:
        stop = self.stop + count
        if stop > self.buffers[0].shape[2]:
            self.resize(stop + max(stop // 2, MIN_SPARE))
        for buffer, tensor in zip(self.buffers, tensors, strict=True):
            buffer[:, :, self.stop : stop] = copy_as(tensor, buffer.dtype)
        self.stop = stop

    def resize(self, capacity: int) -> None:
        """Move to buffers of another capacity; views of the old ones stay valid."""
        if capacity == self.buffers[0].shape[2]:
            return
        old = self.buffers
        self.buffers = [buffer.new_empty((*buffer.shape[:2], capacity, *buffer.shape[3:])) for buffer in old]
        for buffer, before in zip(self.buffers, old, strict=True):
            buffer[:, :, : self.stop] = before[:, :, : self.stop]


@dataclass(frozen=True, eq=False)
class KeySlice:
    """The keys of one call among those of its segment."""

    segment: Segment
    start: int
    stop: int
    first_key: int
    """The position of the first key."""

    def tensors(self) -> list[Tensor]:
        return self.segment.views(self.start, self.stop)


class KeyBuffer:
    """What a layer recorded for each key: (B, G, S, n) tensors, in the order of the positions.

    With a KV cache, every call has the keys of the earlier ones too. A call whose keys are those of the call before,
    all or the last ones, followed by one for each query, appends only the new ones; this is checked by value. Other
    keys, such as those of reordered beams, start a new buffer.

    >>> buffer, keys = KeyBuffer(), torch.randn(1, 2, 4, 8)
    >>> slices = [buffer.append([keys[:, :, :n], keys[:, :, :n].norm(dim=-1)], queries=1) for n in (2, 3, 4)]
    >>> [part.tensors()[0].shape[2] for part in slices], slices[0].segment is slices[2].segment
    ([2, 3, 4], True)
    """

    def __init__(self, dtype: torch.dtype | None = None) -> None:
        self.dtype = dtype
        """The dtype of the recorded tensors; None for their own."""
        self.latest: KeySlice | None = None

    def append(self, tensors: list[Tensor], queries: int) -> KeySlice:
        """The part of the tensors of one call with this many queries.

        The tensors are keys, norms of values and, optionally, values.
        """
        self.latest = self._slice(tensors, queries)
        return self.latest

    def _slice(self, tensors: list[Tensor], queries: int) -> KeySlice:
        length, latest = tensors[0].shape[2], self.latest
        if latest is None or not self._fits(tensors, latest):
            return self._start(tensors)
        held, kept = latest.stop - latest.start, length - queries
        if length == held and _difference(tensors, latest, length) == 0:
            return latest
        difference = _difference(tensors, latest, kept) if 0 < kept <= held else torch.inf
        first_key = latest.first_key + held - kept if difference <= TOLERANCE else 0
        if difference > 0:  # other keys, or the same ones, projected again in another batch
            return self._start(tensors, first_key)
        latest.segment.extend([tensor[:, :, kept:] for tensor in tensors], queries)
        return KeySlice(latest.segment, latest.stop - kept, latest.stop + queries, first_key)

    def _fits(self, tensors: list[Tensor], latest: KeySlice) -> bool:
        """Whether the tensors have the batch, heads, width, dtype and device of the buffers."""
        return all(
            (new.shape[:2], new.shape[3:], self.dtype or new.dtype, new.device)
            == (old.shape[:2], old.shape[3:], old.dtype, old.device)
            for new, old in zip(tensors, latest.segment.buffers, strict=True)
        )

    def _start(self, tensors: list[Tensor], first_key: int = 0) -> KeySlice:
        length = tensors[0].shape[2]
        copies = [copy_as(tensor, self.dtype) for tensor in tensors]
        return KeySlice(Segment(copies, length), 0, length, first_key)


def _difference(tensors: list[Tensor], latest: KeySlice, count: int) -> float:
    """By how much the first `count` entries differ from the last ones of the call before, relative to the largest.

    Equal norms of values may differ by rounding in another batch: they only have to be close.
    """
    own_key, own_norm, *own_values = latest.segment.views(latest.stop - count, latest.stop)
    key, norm, *values = (tensor[:, :, :count].to(own_key.dtype) for tensor in tensors)
    if not torch.allclose(norm.float(), own_norm.float(), rtol=TOLERANCE, atol=0):
        return torch.inf
    pairs = [pair for pair in zip([key, *values], [own_key, *own_values], strict=True) if not torch.equal(*pair)]
    return max((_relative_difference(new, old) for new, old in pairs), default=0.0)


def _relative_difference(new: Tensor, old: Tensor) -> float:
    difference, size = (new.float() - old.float()).abs().amax(), old.float().abs().amax()
    return torch.inf if difference.isnan() else (difference / size.clamp(min=torch.finfo(size.dtype).tiny)).item()


def copy_core(core: AttentionCore, copies: Copies) -> AttentionCore:
    """An attention function of its own, which later changes of the model do not reach."""
    score, sink = core.score, core.sink
    if isinstance(score, AdditiveScore):
        own = AdditiveScore(len(score.vector))
        own.vector = nn.Parameter(copies.copy(score.vector), requires_grad=False)
        score = own
    return AttentionCore(
        scale=core.scale,
        softcap=core.softcap,
        sink=copies.copy(sink) if isinstance(sink, Tensor) else sink,
        dropout=core.dropout,
        score=map_tensors(score, copies.copy),
        backend=core.backend,
    ).train(core.training)


class Recorder:
    """Records calls of attention layers, as copies that later writes to a KV cache or a parameter do not reach.

    - `values`: also record the values and the output of each head.
    - `grad`: keep the graph of the outputs.
    - `dtype`: the dtype of the recorded tensors; None for their own.
    """

    def __init__(self, *, values: bool, grad: bool, dtype: torch.dtype | None) -> None:
        self.values, self.grad, self.dtype = values or grad, grad, dtype
        self.copies = Copies()
        self.buffers: defaultdict[str, KeyBuffer] = defaultdict(lambda: KeyBuffer(dtype))
        self.slices: defaultdict[str, list[KeySlice]] = defaultdict(list)
        """The keys of each call of a layer."""

    def record(
        self,
        path: str,
        core: AttentionCore,
        query: Tensor,
        keys: tuple[Tensor, Tensor],
        output: Tensor,
        *,
        mask: Mask | Tensor | None,
        bias: Bias | Tensor | None,
    ) -> AttentionCall:
        """A call of the layer at `path`, with its keys and values."""
        key, value = (tensor.detach() for tensor in keys)
        tensors = [key, value.norm(dim=-1), value] if self.values else [key, value.norm(dim=-1)]
        part = self.buffers[path].append(tensors, queries=query.shape[2])
        self.slices[path].append(part)
        key, norm, *values = part.tensors()
        return AttentionCall(
            core,
            self.convert(query.detach()),
            key,
            map_tensors(mask, self.copies.copy),
            map_tensors(bias, self.copies.copy),
            norm,
            values[0] if values else None,
            self.convert(output) if self.values else None,
            part.first_key,
        )

    def share_buffers(self, path: str, calls: list[AttentionCall]) -> None:
        """Let all calls of a segment view its last buffers, so that earlier ones are freed."""
        for index, (call, part) in enumerate(zip(calls, self.slices[path], strict=True)):
            part.segment.resize(part.segment.stop)
            key, norm, *values = part.tensors()
            if key.data_ptr() != call.key.data_ptr():
                calls[index] = replace(call, key=key, value_norm=norm, value=values[0] if values else None)

    def convert(self, tensor: Tensor) -> Tensor:
        """A copy in the recorded dtype; the tensor itself, with its graph, where gradients are wanted."""
        if self.grad and tensor.requires_grad:
            return tensor
        return copy_as(tensor.detach(), self.dtype)
