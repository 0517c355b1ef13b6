"""Qwen2: Llama with biases in the projections to queries, keys and values, and a window in some layers."""

from typing import Any, Literal

from pydantic import NonNegativeInt, PositiveInt
from torch import nn

from softlook.base.errors import WeightsError
from softlook.models.llama import Llama
from softlook.weights.families.llama import (
    HARMLESS,
    LlamaLike,
    bare,
    config_of,
    describe_like,
    ignored,
    rules,
    settle,
)
from softlook.weights.family import Family

NEAR, FAR = "sliding_attention", "full_attention"


class Qwen2(LlamaLike):
    """Hugging Face's Qwen2Config, as far as it changes the numbers."""

    vocab_size: PositiveInt = 151936
    intermediate_size: PositiveInt = 22016
    num_key_value_heads: PositiveInt | None = 32
    max_position_embeddings: PositiveInt = 32768
    use_sliding_window: bool = False
    sliding_window: PositiveInt | None = 4096
    max_window_layers: NonNegativeInt = 28
    layer_types: list[Literal["sliding_attention", "full_attention"]] | None = None


def build(theirs: Qwen2, head: str) -> Llama:
    windowed = _windowed(theirs)
    window = theirs.sliding_window if theirs.use_sliding_window and windowed else None
    if windowed and window is None:
        raise WeightsError("this Qwen2 says that some layers look through a window, and not how wide it is")
    return Llama(config_of(theirs, head, biases=True, window=window, windowed=windowed or None))


def _windowed(theirs: Qwen2) -> tuple[int, ...]:
    """The layers that look through the window: those listed, or those from `max_window_layers` on."""
    depth = theirs.num_hidden_layers
    if theirs.layer_types is None:
        slides = theirs.use_sliding_window and theirs.sliding_window is not None
        return tuple(range(theirs.max_window_layers, depth)) if slides else ()
    if len(theirs.layer_types) != depth:
        raise WeightsError(f"layer_types should name {depth} layers, and names {len(theirs.layer_types)}")
    return tuple(i for i, kind in enumerate(theirs.layer_types) if kind == NEAR)


def describe(model: Llama) -> dict[str, Any]:
    c = model.config
    windowed = () if c.window is None else range(c.depth) if c.windowed is None else c.windowed
    return describe_like(model, "Qwen2") | {
        "use_sliding_window": c.window is not None,
        "sliding_window": c.window,
        "max_window_layers": min(windowed, default=c.depth),
        "layer_types": [NEAR if i in windowed else FAR for i in range(c.depth)],
    }


def writes(model: nn.Module) -> bool:
    return isinstance(model, Llama) and model.config.biases


FAMILY = Family(
    name="Qwen2",
    model_type="qwen2",
    schema=Qwen2,
    harmless=HARMLESS | {"use_mrope"},
    architectures={"Qwen2ForCausalLM": "words", "Qwen2Model": "states"},
    prefix="model.",
    settle=settle,
    build=build,
    rules=rules,
    ignored=ignored,
    writes=writes,
    bare=bare,
    describe=describe,
)
