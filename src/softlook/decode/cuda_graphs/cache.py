"""Cache of a model's decoder weights, buffers and CUDA graphs, kept as long as the model."""

import threading
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from softlook.decode.cuda_graphs.beam_workspace import BeamWorkspace, WorkspaceSize
from softlook.decode.cuda_graphs.step import StepState
from softlook.decode.cuda_graphs.weights import DecoderWeights, UnsupportedModelError, shared_weights

MAX_STATE_BYTES = 1 << 31
"""Largest KV cache that is kept for the next session."""
WORKSPACE_FRACTION = 8
"""Beam workspaces are kept up to one part in this many of the GPU's memory."""


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


Fingerprint = tuple[Any, ...]
SETTING_TYPES = bool, int, float, str, type(None)
"""Types of module attributes that are settings."""
CACHES: "WeakKeyDictionary[nn.Module, tuple[Fingerprint, GraphCache | str]]" = WeakKeyDictionary()
"""Per model: its cache, or why it has none."""


def cached_unsupported_reason(model: nn.Module) -> str | None:
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
