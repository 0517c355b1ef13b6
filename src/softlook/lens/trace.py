"""Traces: queries and keys of every attention layer in a forward pass, and the residual stream between blocks."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from softlook.base.errors import ConfigError, ShapeError
from softlook.base.tensors import map_tensors
from softlook.blocks.attention import AttentionCore
from softlook.ops.bias import Bias
from softlook.ops.look import Look
from softlook.ops.masks import Mask

CORE = ".core"
"""The name of the attention function inside an attention layer."""
BLOCKS = "blocks"
"""The name of the list of blocks in a model, and in an encoder and a decoder."""
ALL = slice(None)


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """One call of an attention layer: everything that its map is computed from."""

    core: AttentionCore
    """The attention function with its scale, softcap, sink and score."""
    query: Float[Tensor, "B H T D"]
    key: Float[Tensor, "B G S _"]
    mask: Mask | Tensor | None
    bias: Bias | Tensor | None
    value_norm: Float[Tensor, "B G S"]
    """The Euclidean norm of each value."""
    value: Float[Tensor, "B G S E"] | None = None
    output: Float[Tensor, "B H T E"] | None = None
    """The output of each head, before the output projection. Values and outputs are recorded on request."""

    def look(self, **options: Any) -> Look:
        """Exact statistics of the map in O(N) memory; `options` are those of `softlook.look`."""
        with torch.no_grad():
            return self.core.look(self.query, self.key, self.mask, self.bias, **options)

    @cached_property
    def row_look(self) -> Look:
        """The log-sum-exp of each query, from which any part of the map follows."""
        return self.look(stats=("lse",))


@dataclass(frozen=True, eq=False)
class AttentionTrace:
    """The calls of one attention layer: one in a forward pass, one per step in an RNN or with a KV cache."""

    calls: list[AttentionCall] = field(default_factory=list)

    @property
    def lse(self) -> Float[Tensor, "B H T"]:
        """Log-sum-exp of the scores of each query: a weight is exp(score - lse)."""
        return torch.cat([call.row_look.lse for call in self.calls], 2)

    def look(self, **options: Any) -> Look:
        """Exact statistics of the map of a single call; `options` are those of `softlook.look`."""
        if len(self.calls) != 1:
            raise ConfigError(f"this layer was called {len(self.calls)} times: use the look of each of its `calls`")
        return self.calls[0].look(**options)

    def weights(self, *, heads: slice = ALL, rows: slice = ALL, columns: slice = ALL) -> Float[Tensor, "B h t s"]:
        """Attention weights of consecutive heads, queries and keys, before dropout. Only this part is computed.

        The queries of several calls follow one another; keys that a call did not have yet have the weight 0.

        >>> from softlook.models import GPT, GPTConfig
        >>> model = GPT(GPTConfig(vocab_size=10, context=500, dim=16, depth=2, heads=4)).eval()
        >>> with torch.no_grad(), trace(model) as recorded:
        ...     logits = model(torch.randint(10, (1, 500)))
        >>> recorded["blocks.1.attn"].weights(heads=slice(2, 3), rows=slice(400, 410), columns=slice(0, 5)).shape
        torch.Size([1, 1, 10, 5])
        """
        if not self.calls:
            raise ConfigError("this layer was not called: run the model inside the context of `trace`")
        queries, keys = sum(call.query.shape[2] for call in self.calls), max(call.key.shape[2] for call in self.calls)
        if not range(queries)[rows] or not range(keys)[columns]:
            raise ShapeError(f"{rows} and {columns} select no part of a map of {queries} queries and {keys} keys")
        (first_row, last_row, row_step), (first, last, step) = rows.indices(queries), columns.indices(keys)
        parts: list[Tensor] = []
        for call in self.calls:
            length, own_keys = call.query.shape[2], call.key.shape[2]
            own_rows = slice(max(first_row, 0), min(last_row, length), row_step)
            if own_rows.start < own_rows.stop:
                own_columns = slice(min(first, own_keys), min(last, own_keys), step)
                with torch.no_grad():
                    part = call.row_look.weights(heads=heads, rows=own_rows, columns=own_columns)
                parts.append(nn.functional.pad(part, (0, last - first - part.shape[3])))
            first_row, last_row = first_row - length, last_row - length
        return torch.cat(parts, 2)


@dataclass(eq=False)
class Trace(Mapping[str, AttentionTrace]):
    """What a model computed inside `trace`: an `AttentionTrace` for each attention layer, by the path of its module."""

    layers: dict[str, AttentionTrace]
    residual: dict[str, Float[Tensor, "B T C"]]
    """The residual stream after each block, by the path of the block; that of the last call."""
    logits: Tensor | None = None
    """The output of the last call of the model; None if it is not a single tensor."""

    def __getitem__(self, path: str) -> AttentionTrace:
        if path not in self.layers:
            raise KeyError(f"no attention layer {path!r}: expected one of {', '.join(self.layers)}")
        return self.layers[path]

    def __iter__(self) -> Iterator[str]:
        """The layers that were called."""
        return (path for path, layer in self.layers.items() if layer.calls)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@contextmanager
def trace(model: nn.Module, *, values: bool = False, dtype: torch.dtype | None = None) -> Iterator[Trace]:
    """Record queries and keys of every attention layer, and the residual stream, in each forward pass of the context.

    The fast kernels stay in use, and no map is computed: `AttentionTrace.weights` computes the exact weights of any
    part of a map, and `AttentionTrace.look` its statistics, in memory linear in the length.

    - `values`: also record the values and the output of each head, which contributions and patches need.
    - `dtype`: the dtype of the recorded tensors, such as `torch.float16`; default: that of the model.

    >>> from softlook.blocks import SelfAttention
    >>> layer = SelfAttention(8, heads=2)
    >>> with trace(layer) as recorded:
    ...     output = layer(torch.randn(1, 5, 8))
    >>> recorded["core"].weights().sum(-1).shape, recorded["core"].look(stats=("entropy",))
    (torch.Size([1, 2, 5]), Look(entropy 1x2x5))
    """
    cores = attention_cores(model)
    recorded = Trace({path: AttentionTrace() for path in cores}, {})
    with ExitStack() as hooks:
        for path, core in cores.items():
            record = _record_call(recorded.layers[path].calls, values, dtype)
            hooks.callback(core.register_forward_hook(record, with_kwargs=True).remove)
        for path, module in model.named_modules():
            if path.rpartition(".")[0].rpartition(".")[2] == BLOCKS:
                hooks.callback(module.register_forward_hook(_record_residual(recorded.residual, path, dtype)).remove)
        hooks.callback(model.register_forward_hook(_record_logits(recorded, dtype)).remove)
        yield recorded


def attention_cores(model: nn.Module) -> dict[str, AttentionCore]:
    """The attention function of each attention layer, by the path of the layer."""
    cores = {path.removesuffix(CORE): m for path, m in model.named_modules() if isinstance(m, AttentionCore)}
    if not cores:
        raise ConfigError(f"{type(model).__name__} has no attention layers")
    return cores


def attention_maps(model: nn.Module, *args: Any, **kwargs: Any) -> dict[str, Float[Tensor, "B H T S"]]:
    """Run a model and return the attention weights of each layer, by the path of the attention module.

    The weights are those of the forward pass, before dropout, with its masks and biases, and the scale, softcap and
    sink of each layer. The model is called with the remaining arguments, without gradients. A map has T x S entries
    per head: `trace` gives parts and statistics of long ones.

    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=2, heads=4)).eval()
    >>> {path: tuple(weights.shape) for path, weights in attention_maps(model, torch.tensor([[3, 1, 4]])).items()}
    {'blocks.0.attn': (1, 4, 3, 3), 'blocks.1.attn': (1, 4, 3, 3)}
    """
    with torch.no_grad(), trace(model) as recorded:
        model(*args, **kwargs)
    return {path: layer.weights() for path, layer in recorded.items()}


def _record_call(calls: list[AttentionCall], values: bool, dtype: torch.dtype | None) -> Callable[..., None]:
    """A forward hook that appends copies of the arguments: a KV cache is written in place, a bias is trained."""

    def record(core: AttentionCore, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
        names = ("query", "key", "value", "mask", "bias")
        given: dict[str, Any] = dict.fromkeys(names) | dict(zip(names, args, strict=False)) | kwargs
        query, key = (_convert(given[name], dtype) for name in ("query", "key"))
        mask, bias = (map_tensors(given[name], _copy) for name in ("mask", "bias"))
        own, value = copy(core), given["value"].detach()
        own.score = map_tensors(core.score, _copy)
        recorded = (_convert(value, dtype), _convert(output, dtype)) if values else ()
        calls.append(AttentionCall(own, query, key, mask, bias, value.norm(dim=-1), *recorded))

    return record


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().clone()


def _record_residual(residual: dict[str, Tensor], path: str, dtype: torch.dtype | None) -> Callable[..., None]:
    """A forward hook that keeps the output of a block."""

    def record(block: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        stream = output[0] if isinstance(output, tuple) else output
        if isinstance(stream, Tensor):
            residual[path] = _convert(stream, dtype)

    return record


def _record_logits(recorded: Trace, dtype: torch.dtype | None) -> Callable[..., None]:
    """A forward hook that keeps the output of the model."""

    def record(model: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        recorded.logits = _convert(output, dtype) if isinstance(output, Tensor) else None

    return record


def _convert(tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    return tensor.detach().to(dtype or tensor.dtype, copy=True)
