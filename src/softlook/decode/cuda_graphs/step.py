"""One decoding step on static buffers, and its CUDA graph."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from softlook.decode.cuda_graphs.torch_ops import PositionState, StaticKV, TorchOps
from softlook.decode.cuda_graphs.weights import DecoderWeights, LayerWeights, LinearWeights, NormWeights


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

    def with_capacity(self, weights: DecoderWeights, columns: int) -> "StepState":
        """The same state with a larger KV cache."""
        caches = [
            StaticKV(_pad_columns(kv.key, columns), _pad_columns(kv.value, columns), kv.cross) for kv in self.caches
        ]
        owners = self.positions.owners
        if owners is not None:
            owners = torch.nn.functional.pad(owners, (0, columns - owners.shape[1]))
        positions = PositionState(
            self.positions.column, self.positions.first, owners, weights.rotary(columns), weights.positions(columns)
        )
        return StepState(self.ids, positions, caches, self.lengths, self.step)

    def reorder(self, rows: Tensor, sources: Tensor | None) -> None:
        """Select rows, and the sources they share. No key is copied: `owners` says whose cache holds each column."""
        positions, count = self.positions, len(self.ids)
        if positions.owners is None:
            owners = torch.arange(count, dtype=torch.int32, device=rows.device)
            positions.owners = owners[:, None].expand(-1, self.columns)
        positions.owners = positions.owners.index_select(0, rows).contiguous()
        positions.first, self.ids = positions.first.index_select(0, rows), self.ids.index_select(0, rows)
        if len(rows) > len(self.caches[0].key):
            self.caches = [
                StaticKV(_pad_rows(kv.key, len(rows)), _pad_rows(kv.value, len(rows)), kv.cross) for kv in self.caches
            ]
        if sources is not None and self.lengths is not None:
            self.lengths = self.lengths.index_select(0, sources)
            for kv in self.caches:
                assert kv.cross is not None
                kv.cross = kv.cross[0].index_select(0, sources), kv.cross[1].index_select(0, sources)


def step_logits(weights: DecoderWeights, ops: TorchOps, state: StepState) -> Tensor:
    """Logits (M, V) after the current tokens, whose keys and values are written to the current column."""
    positions = state.positions
    if positions.owners is not None:
        rows = torch.arange(len(state.ids), dtype=positions.owners.dtype, device=positions.owners.device)
        positions.owners.index_copy_(1, positions.column, rows[:, None])
    x = ops.embed(weights, state.ids, positions)
    x = x if weights.embedding_norm is None else ops.norm(x, weights.embedding_norm)
    for layer, kv in zip(weights.layers, state.caches, strict=True):
        x = _layer(x, layer, kv, ops, state)
    return ops.linear(x, weights.lm_head, norm=weights.final_norm)


def _layer(x: Tensor, layer: LayerWeights, kv: StaticKV, ops: TorchOps, state: StepState) -> Tensor:
    qkv = ops.linear(x, layer.attn.qkv, norm=_norm_before(layer, layer.attn_norm))
    attended = ops.self_attention(qkv, layer.attn, kv, state.positions)
    x = _add_residual(layer, layer.attn_norm, ops, attended, layer.attn.out, x)
    if layer.cross_attn is not None and layer.cross_attn_norm is not None and state.lengths is not None:
        query = ops.linear(x, layer.cross_attn.qkv, norm=_norm_before(layer, layer.cross_attn_norm))
        attended = ops.cross_attention(query, layer.cross_attn, kv, state.lengths)
        x = _add_residual(layer, layer.cross_attn_norm, ops, attended, layer.cross_attn.out, x)
    mlp = layer.mlp
    hidden = ops.linear(x, mlp.up, norm=_norm_before(layer, layer.mlp_norm), activation=mlp.activation, gated=mlp.gated)
    return _add_residual(layer, layer.mlp_norm, ops, hidden, mlp.down, x)


def _norm_before(layer: LayerWeights, norm: NormWeights) -> NormWeights | None:
    return norm if layer.pre_norm else None


def _add_residual(
    layer: LayerWeights, norm: NormWeights, ops: TorchOps, hidden: Tensor, out: LinearWeights, x: Tensor
) -> Tensor:
    """x plus the output projection of a sublayer, normalized in post-norm blocks."""
    return ops.linear(hidden, out, residual=x) if layer.pre_norm else ops.linear_norm(hidden, out, norm, x)


def _pad_columns(cache: Tensor, columns: int) -> Tensor:
    out = cache.new_zeros(*cache.shape[:2], columns, cache.shape[3])
    out[:, :, : cache.shape[2]] = cache
    return out


def _pad_rows(cache: Tensor, rows: int) -> Tensor:
    out = cache.new_zeros(rows, *cache.shape[1:])
    out[: len(cache)] = cache
    return out


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


def copy_to_host(part: Tensor) -> Tensor:
    """An asynchronous copy in host memory."""
    if part.device.type != "cuda":
        return part.clone()
    return torch.empty(part.shape, dtype=part.dtype, pin_memory=True).copy_(part, non_blocking=True)


def record_event(device: torch.device) -> "torch.cuda.Event | None":
    """An event after all work submitted so far; None without a GPU."""
    if device.type != "cuda":
        return None
    event = torch.cuda.Event()
    event.record()
    return event
