"""Gemma 2: Llama with norms around every layer, soft caps, scaled embeddings and a window in every other layer."""

from typing import Any, Literal

from pydantic import PositiveFloat, PositiveInt
from torch import nn

from softlook.base.errors import WeightsError
from softlook.models.llama import Llama, LlamaConfig
from softlook.weights.families.activations import to_theirs
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
from softlook.weights.families.qwen2 import FAR, NEAR, layer_types, layer_windows
from softlook.weights.family import Family

GEMMA = {"scaled_embeddings": True, "sandwich_norm": True, "zero_centered_norm": True}
"""What all Gemmas have that Llama has not."""


class GemmaLike(LlamaLike):
    """The fields that Gemma 2 and Gemma 3 share."""

    hidden_size: PositiveInt = 2304
    intermediate_size: PositiveInt = 9216
    num_hidden_layers: PositiveInt = 26
    num_attention_heads: PositiveInt = 8
    num_key_value_heads: PositiveInt | None = 4
    head_dim: PositiveInt | None = 256
    hidden_activation: str | None = "gelu_pytorch_tanh"
    query_pre_attn_scalar: PositiveFloat = 256
    sliding_window: PositiveInt | None = 4096
    layer_types: list[Literal["sliding_attention", "full_attention"]] | None = None
    final_logit_softcapping: PositiveFloat | None = None
    attn_logit_softcapping: PositiveFloat | None = None
    tie_word_embeddings: bool = True
    pad_token_id: int | None = 0
    attention_bias: Literal[False] = False
    use_bidirectional_attention: Literal[False] | None = None
    is_causal: Literal[True] = True  # pyright: ignore[reportIncompatibleVariableOverride]  (frozen)


class Gemma2(GemmaLike):
    """Hugging Face's Gemma2Config, as far as it changes the numbers."""

    vocab_size: PositiveInt = 256000
    max_position_embeddings: PositiveInt = 8192
    final_logit_softcapping: PositiveFloat | None = 30.0
    attn_logit_softcapping: PositiveFloat | None = 50.0


def build(theirs: Gemma2, head: str) -> Llama:
    cap = theirs.attn_logit_softcapping
    return Llama(gemma_config(theirs, head, every=2, attention_logit_softcap=cap))


def gemma_config(theirs: GemmaLike, head: str, *, every: int, **changes: Any) -> LlamaConfig:
    """What Gemmas have in common, in our words; `every` so many layers one sees all of the past."""
    depth, types = theirs.num_hidden_layers, theirs.layer_types
    if theirs.hidden_activation is None:
        raise WeightsError("hidden_activation is null, and softlook does not guess the activation of a Gemma")
    if types is None:
        types = [NEAR if (i + 1) % every else FAR for i in range(depth)]
    # Gemmas call the activation by another name than Llama.
    theirs = theirs.model_copy(update={"hidden_act": theirs.hidden_activation})
    windows = layer_windows(types, theirs.sliding_window, depth)
    scale, cap = theirs.query_pre_attn_scalar**-0.5, theirs.final_logit_softcapping
    return config_of(
        theirs, head, attention_scale=scale, final_logit_softcap=cap if head == "words" else None,
        **GEMMA, **windows, **changes,
    )  # fmt: skip


def describe_gemma(model: Llama, name: str) -> dict[str, Any]:
    """What Gemmas have in common, in their words."""
    c, found = model.config, describe_like(model, name)
    del found["hidden_act"]
    return found | {
        "hidden_activation": to_theirs(c.activation),
        "query_pre_attn_scalar": _scalar(model),
        "sliding_window": c.window or c.context,  # they want one even where no layer has it
        "layer_types": layer_types(model),
        "final_logit_softcapping": c.final_logit_softcap,
        "attention_bias": False,
    }


def _scalar(model: Llama) -> int | None:
    """The whole number whose root scores are divided by; None where there is none."""
    scale = model.config.attention_scale
    found = model.head_width if scale is None else scale**-2
    return round(found) if abs(found - round(found)) < 1e-9 * found else None


def describe(model: Llama) -> dict[str, Any]:
    return describe_gemma(model, "Gemma2") | {"attn_logit_softcapping": model.config.attention_logit_softcap}


def is_gemma(model: nn.Module, *parts: str) -> bool:
    """Is it a Llama with all that Gemmas have, and beside that only these parts?"""
    shared = ("attention_scale", "final_logit_softcap", *GEMMA)
    if not has_only(model, *shared, *parts) or _scalar(model) is None:
        return False
    return all(getattr(model.config, part) for part in GEMMA)


def writes(model: nn.Module) -> bool:
    return is_gemma(model, "attention_logit_softcap")


FAMILY = Family(
    name="Gemma 2",
    model_type="gemma2",
    schema=Gemma2,
    harmless=HARMLESS | {"cache_implementation"},
    architectures=architectures("Gemma2"),
    prefix="model.",
    settle=settle,
    build=build,
    rules=rules,
    ignored=ignored,
    writes=writes,
    bare=bare,
    describe=describe,
)
