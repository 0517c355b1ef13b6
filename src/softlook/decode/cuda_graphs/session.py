"""A decoding session that runs each step as one CUDA graph.

The session owns the static buffers and the graphs; the model is not changed. Buffers and graphs that are not in use are
kept for the next session, as long as the model.
"""

import threading
from importlib.util import find_spec
from typing import Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from softlook.base.errors import ShapeError
from softlook.blocks.kv_cache import KeyValue, KVCache
from softlook.decode.cuda_graphs.beam_workspace import BeamWorkspace, WorkspaceSize
from softlook.decode.cuda_graphs.step import GraphedCallable, StepState, prefill, step_logits
from softlook.decode.cuda_graphs.torch_ops import TorchOps
from softlook.decode.cuda_graphs.weights import DecoderWeights, UnsupportedModelError, shared_weights
from softlook.decode.sessions import CausalLMSession, DecodingSession, Seq2SeqSession, is_empty_cache

COLUMN_MULTIPLE = 64
"""Capacities are rounded up to a multiple of this many tokens."""
DEFAULT_SPARE = 256
"""Capacity for new tokens, if their number is unknown."""
COMPACT_RATIO = 4
"""Finished rows leave the batch when at most one in this many is still running."""
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
MAX_STATE_BYTES = 1 << 31
"""Largest KV cache that is kept for the next session."""
WORKSPACE_FRACTION = 8
"""Beam workspaces are kept up to one part in this many of the GPU's memory."""
Fingerprint = tuple[Any, ...]
SETTING_TYPES = bool, int, float, str, type(None)
"""Types of module attributes that are settings."""
CACHES: "WeakKeyDictionary[nn.Module, tuple[Fingerprint, GraphCache | str]]" = WeakKeyDictionary()
"""Per model: its cache, or why it has none."""


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
        self.graph_cache = graph_cache_for(session.model)
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
        self.state = self.graph_cache.take(len(ids), columns)
        if self.state is None:
            sources = [None if kv is None else (kv[0].contiguous(), kv[1].contiguous()) for kv in cross]
            lengths = source_lengths(self.session, sources[0])
            self.state = StepState.allocate(self.weights, own, sources, lengths, len(ids), columns)
        self.state.write_prompts(own, self.session.padding.num_pad)
        return logits


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
    if not is_empty_cache(session.cache):
        return "its KV cache is of another type, or not empty"
    if getattr(session, "class_label", None) is not None:
        return "it is conditioned on a class label"
    if getattr(session.model, "ngrams", None) is not None:
        return "it has an n-gram model"
    if next(session.model.parameters()).dtype not in DTYPES or torch.is_autocast_enabled(session.device.type):
        return "its dtype is not float32, bfloat16 or float16 throughout"
    mask = getattr(session, "source_mask", None)
    if mask is not None and not bool((mask[:, :-1] | ~mask[:, 1:]).all()):
        return "its source masks have gaps"
    return unsupported_reason(session.model)


def ops_for(device: torch.device) -> TorchOps:
    """Triton kernels on a GPU, PyTorch operations elsewhere."""
    if device.type != "cuda" or find_spec("triton") is None:
        return TorchOps()
    from softlook.decode.cuda_graphs.triton_ops import TritonOps  # noqa: PLC0415  (importing Triton is slow)

    return TritonOps()


def round_up_columns(tokens: int) -> int:
    return -(-tokens // COLUMN_MULTIPLE) * COLUMN_MULTIPLE


class GraphCache:
    """A model's decoder weights, and the buffers with graphs that are not in use."""

    def __init__(self, model: nn.Module) -> None:
        self.weights: DecoderWeights = shared_weights(model)
        self.idle: StepState | None = None
        self.workspaces: list[BeamWorkspace] = []
        """Idle beam workspaces, the most recently used last."""
        self.lock = threading.Lock()

    def take(self, rows: int, columns: int) -> StepState | None:
        """Take the idle state if it has this many rows and a suitable capacity."""
        with self.lock:
            state = self.idle
            if state is None or len(state.ids) != rows or not columns <= state.columns <= 2 * columns:
                return None
            self.idle = None
            return state

    def put(self, state: StepState) -> None:
        """Return a state. One with a source, or with reordered rows, cannot be reused."""
        size = sum(kv.key.numel() * kv.key.element_size() * 2 for kv in state.caches)
        if state.lengths is None and state.positions.owners is None and size <= MAX_STATE_BYTES:
            with self.lock:
                self.idle = state

    def take_workspace(self, size: WorkspaceSize) -> BeamWorkspace | None:
        """Take the smallest idle workspace that fits."""
        with self.lock:
            fitting = [workspace for workspace in self.workspaces if workspace.size.fits(size)]
            if not fitting:
                return None
            smallest = min(fitting, key=lambda workspace: workspace.size.cells)
            self.workspaces = [workspace for workspace in self.workspaces if workspace is not smallest]
            return smallest

    def put_workspace(self, workspace: BeamWorkspace) -> None:
        """Return a workspace. The least recently used ones are freed to stay within the budget."""
        with self.lock:
            budget = _workspace_budget(workspace.state.ids.device)
            kept, left = [workspace], budget - workspace.bytes
            for other in reversed(self.workspaces):
                left -= other.bytes
                if left >= 0:
                    kept.insert(0, other)
            self.workspaces = kept if workspace.bytes <= budget else self.workspaces


def _workspace_budget(device: torch.device) -> int:
    if device.type != "cuda":
        return MAX_STATE_BYTES
    return max(MAX_STATE_BYTES, torch.cuda.get_device_properties(device).total_memory // WORKSPACE_FRACTION)


def unsupported_reason(model: nn.Module) -> str | None:
    """Why a model cannot be run as CUDA graphs; None if it can."""
    known = _lookup(model)
    return known if isinstance(known, str) else None


def graph_cache_for(model: nn.Module) -> GraphCache:
    """The cache of a supported model; a new one when its modules or the storage of its weights changed.

    Weights may change their values: the cache shares their storage.
    """
    known = _lookup(model)
    if isinstance(known, str):
        raise UnsupportedModelError(known)
    return known


def _lookup(model: nn.Module) -> GraphCache | str:
    known = CACHES.get(model)
    if known is None or known[0] != _fingerprint(model):
        created = _create(model)  # it may move weights, so the fingerprint is taken afterwards
        known = CACHES[model] = _fingerprint(model), created
    return known[1]


def _create(model: nn.Module) -> GraphCache | str:
    if len({weight.dtype for weight in model.parameters()}) > 1:
        return "its weights have different dtypes"
    try:
        return GraphCache(model)
    except UnsupportedModelError as reason:
        return str(reason)


def _fingerprint(model: nn.Module) -> Fingerprint:
    """Changes when modules, their settings or hooks change, or where weights are stored."""
    values: list[Any] = []
    for module in model.modules():
        values.append(None if module is model else module)  # the module, not its id, which may be reused
        values.append(bool(module._forward_hooks or module._forward_pre_hooks))
        values += [
            (name, value) for name, value in vars(module).items() if isinstance(value, SETTING_TYPES) or callable(value)
        ]
        for tensor in (*module._parameters.values(), *module._buffers.values()):
            if tensor is not None:
                values.append((tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()))
    return tuple(values)
