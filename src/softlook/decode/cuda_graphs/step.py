"""The decoder's forward pass on static buffers, for prompts and for one step, and the CUDA graph of a step."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from softlook.blocks.kv_cache import KeyValue
from softlook.decode.cuda_graphs.torch_ops import PositionState, StaticKV, TorchOps
from softlook.decode.cuda_graphs.weights import (
    AttentionWeights,
    DecoderWeights,
    LayerWeights,
    LinearWeights,
    NormWeights,
)
from softlook.ops.backends import sdpa_cuda
from softlook.ops.backends.tiled import additive_mask
from softlook.ops.positions.rotary import RotaryAngles, rotary

TORCH_OPS = TorchOps()
Attention = Callable[[Tensor], Tensor]


@dataclass
class StepState:
    """The buffers that a step reads and writes."""

    ids: Tensor
    """(M,): the current tokens."""
    positions: PositionState
    caches: list[StaticKV]
    """One per layer."""
    lengths: Tensor | None
    """(N,): number of tokens of each source."""
    step: Tensor
    """(1,): row of the history that the next tokens are written to."""
    graphs: dict[Any, Any] = field(default_factory=dict)
    """Graphs captured on these buffers, by how tokens are selected."""

    @property
    def columns(self) -> int:
        """Capacity of the KV cache, in tokens."""
        return self.caches[0].key.shape[2]

    @staticmethod
    def allocate(
        weights: DecoderWeights,
        own: list[KeyValue],
        cross: list[KeyValue | None],
        lengths: Tensor | None,
        rows: int,
        columns: int,
        *,
        with_owners: bool = False,
    ) -> "StepState":
        """Empty buffers for keys and values like these, and the keys, values and lengths of the sources."""
        device = own[0][0].device
        integers: dict[str, Any] = {"dtype": torch.long, "device": device}
        owners = torch.zeros(rows, columns, dtype=torch.int32, device=device) if with_owners else None
        rotary, embedding = weights.rotary(columns), weights.positions(columns)
        positions = PositionState(torch.zeros(1, **integers), torch.zeros(rows, **integers), owners, rotary, embedding)
        caches = [
            StaticKV(empty_like_kv(key, rows, columns), empty_like_kv(value, rows, columns), source)
            for (key, value), source in zip(own, cross, strict=True)
        ]
        return StepState(torch.zeros(rows, **integers), positions, caches, lengths, torch.zeros(1, **integers))

    def with_capacity(self, weights: DecoderWeights, columns: int) -> "StepState":
        """The same state with a larger KV cache."""
        caches = [kv.padded_to(len(kv.key), columns) for kv in self.caches]
        owners = self.positions.owners
        if owners is not None:
            owners = F.pad(owners, (0, columns - owners.shape[1]))
        rotary, embedding = weights.rotary(columns), weights.positions(columns)
        positions = replace(self.positions, owners=owners, rotary=rotary, embedding=embedding)
        return StepState(self.ids, positions, caches, self.lengths, self.step)

    def write_prompts(self, own: list[KeyValue], num_pad: Tensor | None) -> None:
        """Copy the keys and values of prompts, and the left padding of each row."""
        N, T = len(own[0][0]), own[0][0].shape[2]
        for kv, (key, value) in zip(self.caches, own, strict=True):
            kv.key[:N, :, :T], kv.value[:N, :, :T] = key, value
        self.positions.column.fill_(T)
        self.positions.first.zero_()
        if num_pad is not None:
            self.positions.first[: len(num_pad)] = num_pad

    def reorder(self, rows: Tensor, sources: Tensor | None) -> None:
        """Select rows, and the sources they share. No key is copied: `owners` says whose cache holds each column."""
        positions, count = self.positions, len(self.ids)
        if positions.owners is None:
            owners = torch.arange(count, dtype=torch.int32, device=rows.device)
            positions.owners = owners[:, None].expand(-1, self.columns)
        positions.owners = positions.owners.index_select(0, rows).contiguous()
        positions.first, self.ids = positions.first.index_select(0, rows), self.ids.index_select(0, rows)
        if len(rows) > len(self.caches[0].key):
            self.caches = [kv.padded_to(len(rows), self.columns) for kv in self.caches]
        if sources is not None and self.lengths is not None:
            self.lengths = self.lengths.index_select(0, sources)
            for kv in self.caches:
                assert kv.cross is not None
                kv.cross = kv.cross[0].index_select(0, sources), kv.cross[1].index_select(0, sources)


def step_logits(weights: DecoderWeights, ops: TorchOps, state: StepState) -> Tensor:
    """Logits (M, V) after the current tokens, whose keys and values are written to the current column."""
    positions, lengths = state.positions, state.lengths
    if positions.owners is not None:
        rows = torch.arange(len(state.ids), dtype=positions.owners.dtype, device=positions.owners.device)
        positions.owners.index_copy_(1, positions.column, rows[:, None])
    x = ops.embed(weights, state.ids, positions)
    x = x if weights.embedding_norm is None else ops.norm(x, weights.embedding_norm)
    for layer, kv in zip(weights.layers, state.caches, strict=True):
        attend = partial(ops.self_attention, attn=layer.attn, kv=kv, positions=positions)
        attend_source = None
        if layer.cross_attn is not None and lengths is not None:
            attend_source = partial(ops.cross_attention, attn=layer.cross_attn, kv=kv, lengths=lengths)
        x = _layer(x, layer, ops, attend, attend_source)
    return ops.linear(x, weights.lm_head, norm=weights.final_norm)


def prefill(weights: DecoderWeights, ids: Tensor, num_pad: Tensor | None) -> tuple[Tensor, list[KeyValue]]:
    """Prompt ids (N, T), left-padded by `num_pad` (N,) -> logits (N, V) of the next token, and the KV cache."""
    N, T = ids.shape
    positions, mask = torch.arange(T, device=ids.device), None
    if num_pad is not None:
        # Padding attends to itself: a row without keys would be NaN and spread.
        visible = (positions >= num_pad[:, None])[:, None] & (positions <= positions[:, None])
        visible |= torch.eye(T, dtype=torch.bool, device=ids.device)
        mask = additive_mask(visible[:, None], weights.token_embedding.dtype)
        positions = (positions - num_pad[:, None]).clamp(min=0)
    x, table, cos_sin = weights.token_embedding[ids], weights.positions(T), weights.rotary(T)
    x = x if weights.embedding_scale == 1.0 else x * weights.embedding_scale
    x = x if table is None else x + table[positions]
    x = x if weights.embedding_norm is None else TORCH_OPS.norm(x, weights.embedding_norm)
    angles = None if cos_sin is None else RotaryAngles(cos_sin[0][positions], cos_sin[1][positions])
    caches: list[KeyValue] = []
    for layer in weights.layers:
        x = _layer(x, layer, TORCH_OPS, partial(_prefill_attention, layer.attn, angles, mask, caches))
    return TORCH_OPS.linear(x[:, -1], weights.lm_head, norm=weights.final_norm), caches


def _layer(
    x: Tensor, layer: LayerWeights, ops: TorchOps, attend: Attention, attend_source: Attention | None = None
) -> Tensor:
    """A decoder block; attention takes the projected queries, keys and values, or the queries alone."""
    qkv = ops.linear(x, layer.attn.qkv, norm=_norm_before(layer, layer.attn_norm))
    x = _add_residual(layer, layer.attn_norm, ops, attend(qkv), layer.attn.out, x)
    if attend_source is not None and layer.cross_attn is not None and layer.cross_attn_norm is not None:
        query = ops.linear(x, layer.cross_attn.qkv, norm=_norm_before(layer, layer.cross_attn_norm))
        x = _add_residual(layer, layer.cross_attn_norm, ops, attend_source(query), layer.cross_attn.out, x)
    hidden = ops.linear(x, layer.up, norm=_norm_before(layer, layer.mlp_norm))
    return _add_residual(layer, layer.mlp_norm, ops, hidden, layer.down, x)


def _norm_before(layer: LayerWeights, norm: NormWeights) -> NormWeights | None:
    return norm if layer.pre_norm else None


def _add_residual(
    layer: LayerWeights, norm: NormWeights, ops: TorchOps, hidden: Tensor, out: LinearWeights, x: Tensor
) -> Tensor:
    """x plus the output projection of a sublayer, normalized in post-norm blocks."""
    return ops.linear(hidden, out, residual=x) if layer.pre_norm else ops.linear_norm(hidden, out, norm, x)


def _prefill_attention(
    attn: AttentionWeights, angles: RotaryAngles | None, mask: Tensor | None, caches: list[KeyValue], qkv: Tensor
) -> Tensor:
    """Causal self-attention of the prompts; their keys and values are appended to `caches`."""
    split = qkv.unflatten(-1, (-1, attn.head_dim)).transpose(1, 2)
    query, key, value = split.split((attn.heads, attn.kv_heads, attn.kv_heads), 1)
    if angles is not None:
        query, key = rotary(query, angles), rotary(key, angles)
    caches.append((key, value))
    causal = mask is None
    if query.is_cuda:
        output = sdpa_cuda.sdpa_attention_cuda(query, key, value, mask, dropout=0.0, causal=causal, scale=attn.scale)
    else:
        is_grouped = attn.heads != attn.kv_heads
        output = F.scaled_dot_product_attention(
            query, key, value, mask, is_causal=causal, scale=attn.scale, enable_gqa=is_grouped
        )
    return output.transpose(1, 2).flatten(-2)


def empty_like_kv(part: Tensor, rows: int, columns: int) -> Tensor:
    """Zeros for the keys or values of this many rows and columns."""
    return part.new_zeros(rows, part.shape[1], columns, part.shape[3])


class GraphedCallable:
    """A function on static buffers, run once and captured as a CUDA graph at its first call, replayed from then on.

    From the second call on its output stays in the same buffers. Without a GPU the function is called each time. Graphs
    that never run at the same time may share a memory `pool`.

    >>> count = torch.zeros(1)
    >>> graph = GraphedCallable(lambda: count.add_(1), torch.device("cpu"))
    >>> graph(), graph()
    (tensor([2.]), tensor([2.]))
    """

    def __init__(self, function: Callable[[], Any], device: torch.device, pool: Any = None) -> None:
        self.function, self.device, self.pool = function, device, pool
        self.graph: torch.cuda.CUDAGraph | None = None
        self.output: Any = None

    def __call__(self) -> Any:
        if self.graph is not None:
            self.graph.replay()
            return self.output
        output = self.function()  # also warms up: kernels are compiled and libraries loaded, which cannot be captured
        if self.device.type == "cuda":
            self._capture()
        return output

    def _capture(self) -> None:
        graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream(self.device)
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):
            graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
            try:
                self.output = self.function()
            finally:
                graph.capture_end()
        torch.cuda.current_stream(self.device).wait_stream(side)
        self.graph = graph


@dataclass
class HostCopy:
    """Tensors on their way to host memory."""

    parts: list[Tensor]
    event: Any
    """CUDA event after the copies; None without a GPU."""

    @property
    def is_ready(self) -> bool:
        return self.event is None or self.event.query()

    def wait(self) -> list[Tensor]:
        """The tensors in host memory."""
        if self.event is not None:
            self.event.synchronize()
        return self.parts


def copy_to_host(*parts: Tensor) -> HostCopy:
    """Start copying tensors, after all work submitted so far."""
    if parts[0].device.type != "cuda":
        return HostCopy([part.clone() for part in parts], None)
    copies = [torch.empty(one.shape, dtype=one.dtype, pin_memory=True).copy_(one, non_blocking=True) for one in parts]
    event = torch.cuda.Event()
    event.record()
    return HostCopy(copies, event)
