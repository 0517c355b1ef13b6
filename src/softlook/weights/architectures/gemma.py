"""Gemma 2 and Gemma 3 (text): sandwich norms, soft caps, QK-norm.

Both have zero-centered norms before and after each sublayer, scaled embeddings and sliding windows. Gemma 2 caps
logits; Gemma 3 has QK-norm and two RoPE thetas.
"""

from dataclasses import replace
from typing import Any, Literal

from pydantic import ConfigDict, PositiveFloat, PositiveInt
from torch import nn

from softlook.base.errors import WeightsError
from softlook.models.llama import Llama, LlamaConfig
from softlook.weights.architectures.base import to_hf_activation
from softlook.weights.architectures.llama import (
    ARCHITECTURE,
    IGNORED_FIELDS,
    HFLlamaLikeConfig,
    decoder_heads,
    differs_only_in,
    llama_config,
    llama_fields,
)
from softlook.weights.architectures.qwen import FULL, SLIDING, hf_layer_types, layer_windows
from softlook.weights.architectures.rope import HFRopeParameters, hf_rope_parameters
from softlook.weights.schema import HFConfigBase

GEMMA_PARTS = {"scale_embeddings": True, "sandwich_norm": True, "zero_centered_norm": True}
"""Fields of LlamaConfig that all Gemmas set."""


class HFGemmaLikeConfig(HFLlamaLikeConfig):
    """Fields shared by Gemma 2 and Gemma 3."""

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


class HFGemma2Config(HFGemmaLikeConfig):
    """Hugging Face's Gemma2Config: the fields that affect the output."""

    vocab_size: PositiveInt = 256000
    max_position_embeddings: PositiveInt = 8192
    final_logit_softcapping: PositiveFloat | None = 30.0
    attn_logit_softcapping: PositiveFloat | None = 50.0


def build_gemma2(hf_config: HFGemma2Config, head: str) -> Llama:
    cap = hf_config.attn_logit_softcapping
    return Llama(gemma_config(hf_config, head, period=2, attention_logit_softcap=cap))


def gemma_config(hf_config: HFGemmaLikeConfig, head: str, *, period: int, **changes: Any) -> LlamaConfig:
    """Convert a Gemma config to a LlamaConfig; by default every `period`-th layer has full attention."""
    depth, types = hf_config.num_hidden_layers, hf_config.layer_types
    if hf_config.hidden_activation is None:
        raise WeightsError("hidden_activation must not be null")
    if types is None:
        types = [SLIDING if (i + 1) % period else FULL for i in range(depth)]
    # Gemma's name of Llama's hidden_act.
    hf_config = hf_config.model_copy(update={"hidden_act": hf_config.hidden_activation})
    windows = layer_windows(types, hf_config.sliding_window, depth)
    scale, cap = hf_config.query_pre_attn_scalar**-0.5, hf_config.final_logit_softcapping
    return llama_config(
        hf_config, head, attention_scale=scale, final_logit_softcap=cap if head == "causal_lm" else None,
        **GEMMA_PARTS, **windows, **changes,
    )  # fmt: skip


def gemma_fields(model: Llama, name: str) -> dict[str, Any]:
    """Shared fields of config.json for Gemma."""
    c, found = model.config, llama_fields(model, name)
    del found["hidden_act"]
    return found | {
        "hidden_activation": to_hf_activation(c.activation),
        "query_pre_attn_scalar": _query_scalar(model),
        "sliding_window": c.sliding_window or c.context,  # required even if no layer has a window
        "layer_types": hf_layer_types(model),
        "final_logit_softcapping": c.final_logit_softcap,
        "attention_bias": False,
    }


def _query_scalar(model: Llama) -> int | None:
    """query_pre_attn_scalar: the integer whose square root divides the scores; None if there is none."""
    scale = model.config.attention_scale
    found = model.head_dim if scale is None else scale**-2
    return round(found) if abs(found - round(found)) < 1e-9 * found else None


def to_gemma2_config(model: Llama) -> dict[str, Any]:
    return gemma_fields(model, "Gemma2") | {"attn_logit_softcapping": model.config.attention_logit_softcap}


def is_gemma(model: nn.Module, *parts: str) -> bool:
    """Whether a model is a Llama with all GEMMA_PARTS, and only these other optional parts."""
    shared = ("attention_scale", "final_logit_softcap", *GEMMA_PARTS)
    if not differs_only_in(model, *shared, *parts) or _query_scalar(model) is None:
        return False
    return all(getattr(model.config, part) for part in GEMMA_PARTS)


def can_export_gemma2(model: nn.Module) -> bool:
    return is_gemma(model, "attention_logit_softcap")


GEMMA2 = replace(
    ARCHITECTURE,
    name="Gemma 2",
    model_type="gemma2",
    config_class=HFGemma2Config,
    ignored_fields=IGNORED_FIELDS | {"cache_implementation"},
    head_by_class=decoder_heads("Gemma2"),
    build=build_gemma2,
    can_export=can_export_gemma2,
    to_config=to_gemma2_config,
)


GEMMA3_HEADS = {
    "Gemma3ForCausalLM": "causal_lm",
    "Gemma3TextModel": "hidden_states",
    "Gemma3TextForSequenceClassification": "classification",
}
GLOBAL_THETA, LOCAL_THETA = 1_000_000.0, 10_000.0


class HFRopeByLayer(HFConfigBase):
    """`rope_parameters` per layer type. Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    full_attention: HFRopeParameters | None = None
    sliding_attention: HFRopeParameters | None = None


class HFGemma3Config(HFGemmaLikeConfig):
    """Hugging Face's Gemma3TextConfig: the fields that affect the output."""

    vocab_size: PositiveInt = 262208
    max_position_embeddings: PositiveInt = 131072
    attn_logit_softcapping: None = None  # pyright: ignore  (Gemma 3 has none)
    rope_parameters: HFRopeByLayer | None = None  # pyright: ignore[reportIncompatibleVariableOverride]
    rope_local_base_freq: PositiveFloat | None = None
    sliding_window_pattern: PositiveInt = 6


def build_gemma3(hf_config: HFGemma3Config, head: str) -> Llama:
    rope = hf_config.rope_parameters or HFRopeByLayer()
    sliding, full = rope.sliding_attention or HFRopeParameters(), rope.full_attention or HFRopeParameters()
    if (sliding.rope_type or sliding.type or "default") != "default" or sliding.partial_rotary_factor not in (None, 1):
        raise WeightsError(
            "rope_type must be 'default' and partial_rotary_factor 1 in the sliding_attention layers of Gemma 3"
        )
    local_theta = sliding.rope_theta or hf_config.rope_local_base_freq or LOCAL_THETA
    if hf_config.rope_scaling is not None:  # the older form, for full_attention layers only
        full = full.model_copy(update=hf_config.rope_scaling.model_dump(exclude_unset=True))
    changes = {"rope_parameters": full, "rope_scaling": None, "rope_theta": hf_config.rope_theta or GLOBAL_THETA}
    plain = hf_config.model_copy(update=changes)
    return Llama(
        gemma_config(plain, head, period=hf_config.sliding_window_pattern, qk_norm=True, local_rope_theta=local_theta)
    )


def to_gemma3_config(model: Llama) -> dict[str, Any]:
    c = model.config
    full = hf_rope_parameters(c, model.head_dim)
    sliding = full if c.local_rope_theta is None else {"rope_type": "default", "rope_theta": c.local_rope_theta}
    return gemma_fields(model, "Gemma3") | {
        "architectures": [hf_class for hf_class, head in GEMMA3_HEADS.items() if head == c.head],
        "rope_parameters": {FULL: full, SLIDING: sliding},
    }


def can_export_gemma3(model: nn.Module) -> bool:
    return is_gemma(model, "qk_norm", "local_rope_theta") and model.config.qk_norm  # pyright: ignore


GEMMA3 = replace(
    ARCHITECTURE,
    name="Gemma 3",
    model_type="gemma3_text",
    config_class=HFGemma3Config,
    ignored_fields=IGNORED_FIELDS | {"cache_implementation", "_sliding_window_pattern"},
    head_by_class=GEMMA3_HEADS,
    build=build_gemma3,
    can_export=can_export_gemma3,
    to_config=to_gemma3_config,
)
