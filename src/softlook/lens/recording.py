"""Recorded tensors: keys of a KV cache stored once, masks and biases that layers share stored once."""

from collections import defaultdict

import torch
from torch import Tensor

from softlook.base.tensors import map_tensors
from softlook.blocks.attention import AttentionCore
from softlook.lens.attention_trace import AttentionCall
from softlook.ops.bias import Bias
from softlook.ops.masks import Mask

MIN_SPARE = 32
"""Positions that a buffer has at least beyond those in use, once keys are appended to it."""
NORM_TOLERANCE = 1e-4
"""Norms of one vector, computed in different batches, may differ by rounding."""


class Copies:
    """Copies of tensors, shared by equal ones: a mask is often given to every layer.

    >>> copies, mask = Copies(), torch.ones(2, 2, dtype=torch.bool)
    >>> copies.copy(mask) is copies.copy(mask.clone())
    True
    """

    def __init__(self) -> None:
        self.latest: dict[tuple[torch.Size, torch.dtype, torch.device], Tensor] = {}

    def copy(self, tensor: Tensor) -> Tensor:
        """A copy that later writes to the tensor do not reach."""
        tensor = tensor.detach()
        kind = (tensor.shape, tensor.dtype, tensor.device)
        latest = self.latest.get(kind)
        if latest is None or not torch.equal(latest, tensor):
            latest = self.latest[kind] = tensor.clone()
        return latest


class KeyBuffer:
    """What a layer recorded for each key: (B, G, S, n) tensors, in the order of the positions.

    With a KV cache, every call has the keys of the earlier ones too. A call whose keys are those of the call before,
    all or the last ones, followed by one for each query, appends only the new ones; this is checked by value. Other
    keys, such as those of reordered beams, start a new buffer.

    >>> buffer, keys = KeyBuffer(), torch.randn(1, 2, 4, 8)
    >>> steps = [buffer.append([keys[:, :, :n], keys[:, :, :n].norm(dim=-1)], queries=1)[0][0] for n in (2, 3, 4)]
    >>> [step.shape[2] for step in steps], steps[1].data_ptr() == steps[2].data_ptr()
    ([2, 3, 4], True)
    """

    def __init__(self, dtype: torch.dtype | None = None) -> None:
        self.dtype = dtype
        """The dtype of the recorded tensors; None for their own."""
        self.buffers: list[Tensor] = []
        self.start, self.stop, self.first_key = 0, 0, 0
        """The keys of the latest call: their place in the buffers, and the position of the first one."""

    def append(self, tensors: list[Tensor], queries: int) -> tuple[list[Tensor], int]:
        """Views of the recorded tensors for one call with this many queries, and the position of its first key.

        The tensors are keys, norms of values and, optionally, values.
        """
        length, held = tensors[0].shape[2], self.stop - self.start
        kept = length - queries
        if not self._fits(tensors):
            self._restart(tensors)
        elif length == held and self._equals(tensors, length):
            pass
        elif 0 < kept <= held and self._equals(tensors, kept):
            self._extend([tensor[:, :, kept:] for tensor in tensors], queries)
            self.first_key += held - kept
            self.start = self.stop - length
        else:
            self._restart(tensors)
        return [buffer[:, :, self.start : self.stop] for buffer in self.buffers], self.first_key

    def _fits(self, tensors: list[Tensor]) -> bool:
        """Whether the tensors have the batch, heads, width, dtype and device of the buffers."""
        if not self.buffers:
            return False
        return all(
            (new.shape[:2], new.shape[3:], self.dtype or new.dtype, new.device)
            == (old.shape[:2], old.shape[3:], old.dtype, old.device)
            for new, old in zip(tensors, self.buffers, strict=True)
        )

    def _equals(self, tensors: list[Tensor], count: int) -> bool:
        """Whether the first `count` entries are the last ones of the call before."""
        held = slice(self.stop - count, self.stop)
        own_key, own_norm, *own_values = (buffer[:, :, held] for buffer in self.buffers)
        key, norm, *values = (tensor[:, :, :count].to(own_key.dtype) for tensor in tensors)
        if not torch.equal(key, own_key) or not torch.allclose(norm, own_norm, rtol=NORM_TOLERANCE, atol=0):
            return False
        return all(torch.equal(new, old) for new, old in zip(values, own_values, strict=True))

    def _restart(self, tensors: list[Tensor]) -> None:
        self.buffers = [tensor.to(self.dtype or tensor.dtype, copy=True) for tensor in tensors]
        self.start, self.stop, self.first_key = 0, tensors[0].shape[2], 0

    def _extend(self, tensors: list[Tensor], count: int) -> None:
        stop = self.stop + count
        if stop > self.buffers[0].shape[2]:
            self.buffers = [_grow(buffer, self.stop, stop + max(stop // 2, MIN_SPARE)) for buffer in self.buffers]
        for buffer, tensor in zip(self.buffers, tensors, strict=True):
            buffer[:, :, self.stop : stop] = tensor
        self.stop = stop


def _grow(buffer: Tensor, used: int, capacity: int) -> Tensor:
    """A larger buffer with the same first entries; earlier calls keep their views of the old one."""
    new = buffer.new_empty((*buffer.shape[:2], capacity, *buffer.shape[3:]))
    new[:, :, :used] = buffer[:, :, :used]
    return new


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
        (key, norm, *values), first_key = self.buffers[path].append(tensors, queries=query.shape[2])
        return AttentionCall(
            core,
            self.convert(query.detach()),
            key,
            map_tensors(mask, self.copies.copy),
            map_tensors(bias, self.copies.copy),
            norm,
            values[0] if values else None,
            self.convert(output) if self.values else None,
            first_key,
        )

    def convert(self, tensor: Tensor) -> Tensor:
        """A copy in the recorded dtype; the tensor itself, with its graph, where gradients are wanted."""
        if self.grad and tensor.requires_grad:
            return tensor
        return tensor.detach().to(self.dtype or tensor.dtype, copy=True)
