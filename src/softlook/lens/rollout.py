"""Attention rollout: how much of each input position reaches an output through all layers."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from softlook.base.errors import ShapeError
from softlook.lens.trace import AttentionTrace, Trace


def attention_rollout(
    trace: Trace,
    sources: Float[Tensor, "S R"] | None = None,
    *,
    layers: Sequence[str] | None = None,
    residual: float = 0.5,
) -> Float[Tensor, "B S R"]:
    """Attention rollout (Abnar and Zuidema 2020): the product over layers of attention and residual connection.

    Each layer is `residual` x identity + (1 - `residual`) x attention, the mean over heads. The product is applied to
    `sources` from the right, layer by layer, without any map: O(S R) memory.

    - `sources`: groups of input positions as columns, such as sentences or single tokens; default: every position by
      itself, which makes the result an S x S matrix.
    - `layers`: paths of self-attention layers in order; default: all layers of the trace.

    >>> from softlook.lens import trace
    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=2, heads=4)).eval()
    >>> with torch.no_grad(), trace(model) as recorded:
    ...     logits = model(torch.tensor([[3, 1, 4]]))
    >>> attention_rollout(recorded).sum(-1).round()
    tensor([[1., 1., 1.]])
    """
    if not 0 <= residual <= 1:
        raise ValueError(f"residual must be from 0 to 1, got {residual}")
    chosen = {path: trace[path] for path in (layers or trace)}
    length = _check_length(chosen)
    first = next(iter(chosen.values())).calls[0].query
    start = torch.eye(length) if sources is None else sources
    if start.ndim != 2 or len(start) != length:
        raise ShapeError(f"sources have a row for each of the {length} positions, got {tuple(start.shape)}")
    flow = start.to(first.device, torch.float32).expand(len(first), *start.shape)
    for layer in chosen.values():
        call = layer.calls[0]
        value = flow[:, None].expand(-1, call.key.shape[1], -1, -1).to(call.query.dtype)
        mixed = call.look(stats=()).mix(value).float().mean(1)
        flow = residual * flow + (1 - residual) * mixed
    return flow


def _check_length(layers: dict[str, AttentionTrace]) -> int:
    """The length that all layers share."""
    shapes = {path: (len(layer.calls), *_map_shape(layer)) for path, layer in layers.items()}
    if not shapes:
        raise ShapeError("the trace is empty: run the model inside the context")
    for path, (calls, queries, keys) in shapes.items():
        if calls != 1 or queries != keys or queries != next(iter(shapes.values()))[1]:
            raise ShapeError(
                f"rollout multiplies maps of self-attention of one length, but {path} has {queries} queries and {keys} "
                f"keys in {calls} calls. Name the layers of one stack with `layers=`."
            )
    return next(iter(shapes.values()))[1]


def _map_shape(layer: AttentionTrace) -> tuple[int, int]:
    return (layer.calls[0].query.shape[2], layer.calls[0].key.shape[2]) if layer.calls else (0, 0)
