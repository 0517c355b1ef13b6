"""Qwen2: Llama with biases in the projections to queries, keys and values, and a window in some layers."""

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import NonNegativeInt, PositiveInt
from torch import nn

from softlook.base.errors import WeightsError
from softlook.models.llama import Llama
from softlook.ops.masks.order import CAUSAL
from softlook.weights.families.llama import (
    HARMLESS,
    LlamaLike,
    architectures,
    bare,
    config_of,
    describe_like,
    has_only,
    ignored,
    rules,
    settle,
)
from softlook.weights.family import Family

NEAR, FAR = "sliding_attention", "full_attention"


class QwenLike(LlamaLike):
    """The fields that Qwen2 and Qwen3 share."""

    vocab_size: PositiveInt = 151936
    intermediate_size: PositiveInt = 22016
    num_key_value_heads: PositiveInt | None = 32
    max_position_embeddings: PositiveInt = 32768
    use_sliding_window: bool = False
    sliding_window: PositiveInt | None = 4096
    max_window_layers: NonNegativeInt = 28
    layer_types: list[Literal["sliding_attention", "full_attention"]] | None = None


class Qwen2(QwenLike):
    """Hugging Face's Qwen2Config, as far as it changes the numbers."""


def build(theirs: Qwen2, head: str) -> Llama:
    return Llama(config_of(theirs, head, biases=True, **windows(theirs)))


def windows(theirs: QwenLike) -> dict[str, Any]:
    """The window, and the layers that look through it: those listed, or those from `max_window_layers` on."""
    depth, window = theirs.num_hidden_layers, theirs.sliding_window if theirs.use_sliding_window else None
    types = theirs.layer_types
    if types is None:
        first = depth if window is None else theirs.max_window_layers
        types = [NEAR if i >= first else FAR for i in range(depth)]
    return layer_windows(types, window, depth)


def layer_windows(types: Sequence[str], window: int | None, depth: int) -> dict[str, Any]:
    """`layer_types` and `sliding_window` in our words."""
    if len(types) != depth:
        raise WeightsError(f"layer_types should name {depth} layers, and names {len(types)}")
    windowed = tuple(i for i, kind in enumerate(types) if kind == NEAR)
    if windowed and window is None:
        raise WeightsError("some layers look through a window, and the config does not say how wide it is")
    return {"window": window if windowed else None, "windowed": windowed or None}


def describe(model: Llama) -> dict[str, Any]:
    return describe_like(model, "Qwen2") | describe_windows(model)


def layer_types(model: Llama) -> list[str]:
    """`layer_types` of a model of ours."""
    return [FAR if reach in (CAUSAL, None) else NEAR for reach in model.reaches]


def describe_windows(model: Llama) -> dict[str, Any]:
    """The windows of Qwen2 and Qwen3, in their words."""
    c, types = model.config, layer_types(model)
    return {
        "use_sliding_window": c.window is not None,
        "sliding_window": c.window,
        "max_window_layers": types.index(NEAR) if NEAR in types else c.depth,
        "layer_types": types,
    }


def writes(model: nn.Module) -> bool:
    return has_only(model, "biases", "causal") and model.config.biases


FAMILY = Family(
    name="Qwen2",
    model_type="qwen2",
    schema=Qwen2,
    harmless=HARMLESS | {"use_mrope"},
    architectures=architectures("Qwen2"),
    prefix="model.",
    settle=settle,
    build=build,
    rules=rules,
    ignored=ignored,
    writes=writes,
    bare=bare,
    describe=describe,
)
