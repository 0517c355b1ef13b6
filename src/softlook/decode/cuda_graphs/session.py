"""A decoding session that runs each step as one CUDA graph.

The session owns the static buffers and the graphs; the model is not changed.
"""

from importlib.util import find_spec
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from softlook.base.errors import ShapeError
from softlook.blocks.kv_cache import DynamicCache, KeyValue, KVCache
from softlook.decode.cuda_graphs.cache import GraphCache, cached_unsupported_reason, graph_cache_for
from softlook.decode.cuda_graphs.step import GraphedCallable, StepState, step_logits
from softlook.decode.cuda_graphs.torch_ops import PositionState, StaticKV, TorchOps
from softlook.decode.cuda_graphs.weights import AttentionWeights, DecoderWeights, LayerWeights
from softlook.decode.sessions import CausalLMSession, DecodingSession, Seq2SeqSession
from softlook.ops.backends import sdpa_cuda
from softlook.ops.backends.tiled import additive_mask
from softlook.ops.positions.rotary import RotaryAngles, rotary

COLUMN_MULTIPLE = 64
"""Capacities are rounded up to a multiple of this many tokens."""
DEFAULT_SPARE = 256
"""Capacity for new tokens, if their number is unknown."""
COMPACT_RATIO = 4
"""Finished rows leave the batch when at most one in this many is still running."""
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
TORCH_OPS = TorchOps()


class CudaGraphSession:
    """A `CausalLMSession` or `Seq2SeqSession` without cached tokens, run as CUDA graphs.

    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=1, heads=2)).eval()
    >>> eager, graph = CausalLMSession(model), CudaGraphSession(CausalLMSession(model))
    >>> ids = torch.tensor([[3, 1, 4]])
    >>> with torch.no_grad():
    ...     for new in (ids, ids[:, :1], ids[:, 1:2]):
    ...         assert torch.allclose(eager.step(new), graph.step(new), atol=1e-5)
    """

    def __init__(
        self, session: CausalLMSession | Seq2SeqSession, capacity: int | None = None, ops: TorchOps | None = None
    ) -> None:
        self.session, self.capacity = session, capacity
        self.device, self.max_length = session.device, session.max_length
        self.graph_cache: GraphCache = graph_cache_for(session.model)
        self.weights, self.ops = self.graph_cache.weights, ops_for(session.device) if ops is None else ops
        self.state: StepState | None = None
        self.length = 0
        """Columns in use."""
        self.graph: GraphedCallable | None = None
        self.active_rows: Tensor | None = None
        """Rows that are still needed, if some have finished without being removed from the batch; None for all."""

    def step(self, ids: Int[Tensor, "N T"], lengths: Int[Tensor, " N"] | None = None) -> Float[Tensor, "N V"]:
        """As `DecodingSession.step`. The logits are overwritten by the next step: copy them to keep them."""
        if self.state is None:
            return self._begin(ids, lengths)
        if ids.shape[1] != 1:
            raise ShapeError(f"a CUDA graph session takes one token per step, got {ids.shape[1]}")
        self.reserve(1)
        state, rows = self.state, self.active_rows
        if rows is None:
            state.ids.copy_(ids[:, 0])
        else:
            state.ids.index_copy_(0, rows, ids[:, 0])
        if self.graph is None:
            self.graph = GraphedCallable(lambda: self._step(state), self.device)
        self.length += 1
        logits = self.graph()
        return logits if rows is None else logits.index_select(0, rows)

    def reorder(self, rows: Int[Tensor, " M"]) -> None:
        """As `DecodingSession.reorder`. Rows that leave a captured batch are ignored until only a few are left."""
        assert self.state is not None
        rows = rows if self.active_rows is None else self.active_rows.index_select(0, rows)
        is_large = len(rows) * COMPACT_RATIO > len(self.state.ids)
        if self.graph is not None and is_large and len(rows.unique()) == len(rows):
            self.active_rows = rows
        else:
            self._select(rows)

    def compact(self) -> None:
        """Remove ignored rows from the batch."""
        if self.active_rows is not None:
            self._select(self.active_rows)

    def reserve(self, tokens: int) -> None:
        """Make room for more tokens."""
        assert self.state is not None
        if self.length + tokens > self.state.columns:
            columns = round_up_columns(max(self.length + tokens, self.length * 3 // 2))
            self.state = self.state.with_capacity(self.weights, columns)
            self.graph = None

    def close(self) -> None:
        """Return the buffers to the cache of the model."""
        if self.state is not None:
            if self.device.type == "cuda":
                torch.cuda.current_stream(self.device).synchronize()
            self.graph_cache.put(self.state)
            self.state = self.graph = None

    def prefill(self, ids: Tensor, lengths: Tensor | None) -> tuple[Tensor, list[KeyValue], list[KeyValue | None]]:
        """Read the prompts: logits of the next token, and keys and values of self- and cross-attention per layer."""
        session = self.session
        session.padding.begin(ids, lengths)
        if isinstance(session, CausalLMSession):
            logits, own = prefill(self.weights, ids, session.padding.num_pad)
            return logits, own, [None] * len(own)
        logits, layers = session.step(ids, lengths), session.cache.layers
        own, cross = [layer.kv for layer in layers], [layer.cross for layer in layers]  # pyright: ignore[reportAttributeAccessIssue]
        session.cache = KVCache()
        return logits, own, cross

    def _select(self, rows: Tensor) -> None:
        assert self.state is not None
        self.state.reorder(rows, rows if isinstance(self.session, Seq2SeqSession) else None)
        self.graph, self.active_rows, self.state.graphs = None, None, {}

    def _step(self, state: StepState) -> Tensor:
        logits = step_logits(self.weights, self.ops, state)
        state.positions.column.add_(1)
        return logits

    def _begin(self, ids: Tensor, lengths: Tensor | None) -> Tensor:
        logits, own, cross = self.prefill(ids, lengths)
        self.length = ids.shape[1]
        capacity = self.length + DEFAULT_SPARE if self.capacity is None else self.capacity
        columns = round_up_columns(max(self.length, capacity))
        self.state = self.graph_cache.take(len(ids), columns) or self._allocate(len(ids), columns, own, cross)
        _copy_prefill(self.state, own, self.length, self.session.padding.num_pad)
        return logits

    def _allocate(self, rows: int, columns: int, own: list[Any], cross: list[Any]) -> StepState:
        integers: dict[str, Any] = {"device": self.device, "dtype": torch.long}
        caches = [_allocate_kv(*both, columns) for both in zip(own, cross, strict=True)]
        positions = PositionState(
            torch.zeros(1, **integers),
            torch.zeros(rows, **integers),
            None,
            self.weights.rotary(columns),
            self.weights.positions(columns),
        )
        lengths = source_lengths(self.session, caches[0].cross)
        return StepState(torch.zeros(rows, **integers), positions, caches, lengths, torch.zeros(1, **integers))


def _allocate_kv(own: KeyValue, cross: KeyValue | None, columns: int) -> StaticKV:
    shape = *own[0].shape[:2], columns, own[0].shape[3]
    cross = None if cross is None else (cross[0].contiguous(), cross[1].contiguous())
    return StaticKV(own[0].new_zeros(shape), own[1].new_zeros(shape), cross)


def _copy_prefill(state: StepState, own: list[KeyValue], length: int, num_pad: Tensor | None) -> None:
    for kv, (key, value) in zip(state.caches, own, strict=True):
        kv.key[:, :, :length], kv.value[:, :, :length] = key, value
    state.positions.column.fill_(length)
    state.positions.first.zero_() if num_pad is None else state.positions.first.copy_(num_pad)


def source_lengths(session: CausalLMSession | Seq2SeqSession, cross: KeyValue | None) -> Tensor | None:
    """Number of tokens of each source."""
    if not isinstance(session, Seq2SeqSession):
        return None
    if session.source_mask is not None:
        return session.source_mask.sum(1)
    assert cross is not None
    return torch.full((len(cross[0]),), cross[0].shape[2], device=cross[0].device)


def graph_unsupported_reason(session: DecodingSession) -> str | None:
    """Why a session is not run as CUDA graphs; None if it is."""
    if type(session) not in (CausalLMSession, Seq2SeqSession):
        return f"{type(session).__name__} has no CUDA graph implementation"
    if session.device.type != "cuda":
        return f"CUDA graphs need a GPU, and the model is on {session.device}"
    return model_unsupported_reason(session)


def model_unsupported_reason(session: Any) -> str | None:
    """The same, on any device."""
    cache = session.cache
    if type(cache) is not KVCache or cache.make is not DynamicCache or cache.length:
        return "its KV cache is of another type, or not empty"
    if getattr(session, "class_label", None) is not None:
        return "it is conditioned on a class label"
    if next(session.model.parameters()).dtype not in DTYPES or torch.is_autocast_enabled(session.device.type):
        return "its dtype is not float32, bfloat16 or float16 throughout"
    mask = getattr(session, "source_mask", None)
    if mask is not None and not bool((mask[:, :-1] | ~mask[:, 1:]).all()):
        return "its source masks have gaps"
    return cached_unsupported_reason(session.model)


def ops_for(device: torch.device) -> TorchOps:
    """Triton kernels on a GPU, PyTorch operations elsewhere."""
    if device.type != "cuda" or find_spec("triton") is None:
        return TorchOps()
    from softlook.decode.cuda_graphs.triton_ops import TritonOps  # noqa: PLC0415  (importing Triton is slow)

    return TritonOps()


def round_up_columns(tokens: int) -> int:
    return -(-tokens // COLUMN_MULTIPLE) * COLUMN_MULTIPLE


def prefill(weights: DecoderWeights, ids: Tensor, num_pad: Tensor | None) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
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
    caches = []
    for layer in weights.layers:
        x, kv = _prefill_layer(x, layer, angles, mask)
        caches.append(kv)
    return TORCH_OPS.linear(x[:, -1], weights.lm_head, norm=weights.final_norm), caches


def _prefill_layer(
    x: Tensor, layer: LayerWeights, angles: RotaryAngles | None, mask: Tensor | None
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    pre_norm, mlp = layer.pre_norm, layer.mlp
    qkv = TORCH_OPS.linear(x, layer.attn.qkv, norm=layer.attn_norm if pre_norm else None)
    attended, kv = _prefill_attention(qkv, layer.attn, angles, mask)
    x = TORCH_OPS.linear(attended, layer.attn.out, residual=x)
    x = x if pre_norm else TORCH_OPS.norm(x, layer.attn_norm)
    norm = layer.mlp_norm if pre_norm else None
    hidden = TORCH_OPS.linear(x, mlp.up, norm=norm, activation=mlp.activation, gated=mlp.gated)
    x = TORCH_OPS.linear(hidden, mlp.down, residual=x)
    return x if pre_norm else TORCH_OPS.norm(x, layer.mlp_norm), kv


def _prefill_attention(
    qkv: Tensor, attn: AttentionWeights, angles: RotaryAngles | None, mask: Tensor | None
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    split = qkv.unflatten(-1, (-1, attn.head_dim)).transpose(1, 2)
    query, key, value = split.split((attn.heads, attn.kv_heads, attn.kv_heads), 1)
    if angles is not None:
        query, key = rotary(query, angles), rotary(key, angles)
    causal = mask is None
    if query.is_cuda:
        output = sdpa_cuda.sdpa_attention_cuda(query, key, value, mask, dropout=0.0, causal=causal, scale=attn.scale)
    else:
        is_grouped = attn.heads != attn.kv_heads
        output = F.scaled_dot_product_attention(
            query, key, value, mask, is_causal=causal, scale=attn.scale, enable_gqa=is_grouped
        )
    return output.transpose(1, 2).flatten(-2), (key, value)
