"""KV cache of beam search, in which beams share their past."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from softlook.base.errors import ShapeError
from softlook.blocks.kv_cache import CrossKVCache, KeyValue, KVCache, check_crop, select_rows
from softlook.ops.backends.tiled import additive_mask
from softlook.ops.masks.base import DenseMask

MIN_SPARE = 24
"""Columns per beam that a newly allocated buffer has at least beyond those in use."""
MIN_SOURCES_FOR_BMM = 16
"""Number of sequences from which two batched products are faster on a CPU than SDPA, whose tiles few queries leave
mostly empty."""


class BeamCache(KVCache):
    """The KV cache of beam search. Keys and values are never copied between beams.

    The new tokens of all beams of a sequence are appended as columns of one buffer; each beam is a list of the columns
    that belong to it. Dropping or duplicating a beam changes only the lists.

    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=2, heads=2)).eval()
    >>> cache, rows = BeamCache(), torch.tensor([0, 0])
    >>> _ = model(torch.tensor([[3, 1]]), cache=cache)
    >>> cache.expand_beams(rows, 2)
    >>> logits = model(torch.tensor([[4], [5]]), cache=cache)
    >>> torch.allclose(logits[1, 0], model(torch.tensor([[3, 1, 5]]))[0, -1], atol=1e-5)
    True
    """

    def __init__(self) -> None:
        super().__init__(lambda: BeamLayerCache(self))
        self.num_beams = 1
        self.columns: Tensor | None = None
        """(N, K, t): the columns of each beam, in order; None before `expand_beams`."""
        self.beam_mask: Tensor | None = None
        """(N, 1, K, S): 0 where a column belongs to a beam, -inf elsewhere."""
        self._additive: tuple[DenseMask | None, Tensor | None] = (None, None)

    def additive_mask(self, mask: DenseMask | None) -> Tensor | None:
        """The additive mask of the encoded sequences, computed once for all layers."""
        if mask is not self._additive[0]:
            self._additive = mask, None if mask is None else additive_mask(mask.visible, torch.float32)
        return self._additive[1]

    def reorder(self, rows: Tensor) -> None:
        if self.columns is not None:
            raise ShapeError("beams are reordered by reorder_beams, which keeps the beams of a sequence together")
        super().reorder(rows)

    def expand_beams(self, rows: Tensor, count: int) -> None:
        if self.columns is not None:
            raise ShapeError("this cache has been expanded to beams already")
        self.num_beams, prompt = count, torch.arange(self.length, device=rows.device)
        self.columns = prompt.expand(len(rows) // count, count, -1)

    def reorder_beams(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """Select these beams, those of a sequence next to each other; with `sources`, only these sequences."""
        assert self.columns is not None
        self.columns = self.columns.flatten(0, 1).index_select(0, rows).unflatten(0, (-1, self.num_beams))
        super().reorder_beams(rows, sources)

    def crop(self, count: int) -> None:
        if self.columns is not None:
            raise ShapeError("a cache that has been expanded to beams cannot be cropped")
        super().crop(count)

    def step(self, length: int, columns: int) -> None:
        """Append one column per beam, unless an earlier layer of this step has done so."""
        assert self.columns is not None
        if self.columns.shape[-1] > length:
            return
        new = torch.arange(columns, columns + self.num_beams, device=self.columns.device)
        self.columns = torch.cat([self.columns, new[:, None].expand(len(self.columns), -1, 1)], -1)
        masked = torch.full((*self.columns.shape[:2], columns + self.num_beams), -torch.inf, device=self.columns.device)
        self.beam_mask = masked.scatter_(-1, self.columns, 0.0)[:, None]


class BeamLayerCache(CrossKVCache):
    """The cache of one layer: a buffer that new columns are appended to."""

    def __init__(self, beams: BeamCache) -> None:
        self.beams, self.length, self.columns = beams, 0, 0
        self.buffer: Tensor | None = None
        """(2, N, G, S, D): keys and values, with spare capacity."""

    def update(self, key: Tensor, value: Tensor) -> KeyValue:
        """Keys and values of each row. With several beams this gathers a copy; `attend` does not."""
        new = torch.stack([key, value])
        if self.beams.columns is None:
            self.length += key.shape[2]
            kv = self._write(new)
            return kv[0], kv[1]
        if key.shape[2] != 1:
            raise ShapeError(f"beams take one token per step, got {key.shape[2]}")
        num_beams = self.beams.num_beams
        kv = self._write_step(new.unflatten(1, (-1, num_beams)).squeeze(4).transpose(2, 3))
        columns = self.beams.columns[None, :, :, None, :, None]  # (1, N, K, 1, t, 1)
        repeated = kv[:, :, None].expand(-1, -1, num_beams, -1, -1, -1)
        gathered = repeated.gather(4, columns.expand(2, -1, -1, kv.shape[2], -1, kv.shape[4])).flatten(1, 2)
        return gathered[0], gathered[1]

    def attend(self, heads: Float[Tensor, "N K heads D"], kv_heads: int, scale: float) -> Float[Tensor, "NK HD"]:
        """Self-attention of one token per beam over the beam's own columns, without copying them.

        `heads` holds the queries, then the keys, then the values.
        """
        split = heads.shape[2] - 2 * kv_heads
        kv = self._write_step(heads[:, :, split:].unflatten(2, (2, kv_heads)).permute(2, 0, 3, 1, 4))
        query = heads[:, :, :split].transpose(1, 2)
        return beam_attention(query, kv[0], kv[1], mask=self.beams.beam_mask, scale=scale)

    def reorder_beams(self, rows: Tensor, sources: Tensor | None = None) -> None:
        if sources is not None and self.buffer is not None:
            self.buffer = self.buffer.index_select(1, sources)
        self.cross = select_rows(self.cross, sources)

    def crop(self, count: int) -> None:
        check_crop(count, self.length)
        self.length, self.columns = self.length - count, self.columns - count

    def _write_step(self, new: Float[Tensor, "2 N G K D"]) -> Float[Tensor, "2 N G S D"]:
        """Append one token of each beam, in adjacent columns."""
        self.beams.step(self.length, self.columns)
        self.length += 1
        return self._write(new)

    def _write(self, new: Float[Tensor, "2 N G T D"]) -> Float[Tensor, "2 N G S D"]:
        start, stop = self.columns, self.columns + new.shape[3]
        if self.buffer is None or stop > self.buffer.shape[3]:
            self._grow(new, stop + max(stop // 2, MIN_SPARE * self.beams.num_beams))
        assert self.buffer is not None
        self.columns = stop
        self.buffer[:, :, :, start:stop] = new
        return self.buffer[:, :, :, :stop]

    def _grow(self, like: Tensor, columns: int) -> None:
        buffer = like.new_empty(*like.shape[:3], columns, like.shape[4])
        if self.buffer is not None:
            buffer[:, :, :, : self.columns] = self.buffer[:, :, :, : self.columns]
        self.buffer = buffer


def fold_beams(query: Float[Tensor, "B H T D"], sources: int) -> Float[Tensor, "N H KT D"]:
    """Queries of the beams of each sequence, concatenated along time: one attention call serves all beams.

    >>> fold_beams(torch.randn(6, 4, 1, 8), 2).shape
    torch.Size([2, 4, 3, 8])
    """
    B, H, T, D = query.shape
    if sources < 1 or B % sources:
        raise ShapeError(f"the batch must be a multiple of the number of encoded sequences, got {B} and {sources}")
    return query.view(sources, B // sources, H, T, D).transpose(1, 2).reshape(sources, H, -1, D)


def unfold_beams(x: Float[Tensor, "N H KT D"], rows: int) -> Float[Tensor, "B H T D"]:
    """The inverse of `fold_beams`."""
    N, H, _, D = x.shape
    return x.view(N, H, rows // N, -1, D).transpose(1, 2).reshape(rows, H, -1, D)


def beam_attention(
    query: Float[Tensor, "N H K D"],
    key: Float[Tensor, "N G S D"],
    value: Float[Tensor, "N G S D"],
    *,
    mask: Float[Tensor, "N #H #K S"] | None,
    scale: float,
) -> Float[Tensor, "NK HD"]:
    """Attention of the K beams of each sequence over shared keys, with an additive mask: one row per beam.

    >>> query, (key, value) = torch.randn(2, 4, 3, 8), torch.randn(2, 2, 2, 5, 8)
    >>> beam_attention(query, key, value, mask=None, scale=1.0).shape
    torch.Size([6, 32])
    """
    (N, H, K, D), G = query.shape, key.shape[1]
    if N >= MIN_SOURCES_FOR_BMM and G == H and query.device.type == "cpu":
        output = _bmm_attention(query, key, value, mask, scale)
    else:
        output = scaled_dot_product_attention(query, key, value, mask, scale=scale, enable_gqa=G != H)
    return output.transpose(1, 2).reshape(N * K, H * D)


def _bmm_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """Attention by two batched matrix products."""
    scores = torch.bmm((query * scale).flatten(0, 1), key.flatten(0, 1).transpose(1, 2)).unflatten(0, query.shape[:2])
    if mask is not None:
        scores += mask
    return torch.bmm(scores.softmax(-1).flatten(0, 1), value.flatten(0, 1)).unflatten(0, query.shape[:2])
