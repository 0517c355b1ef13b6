"""Qwen2 (QKV biases), Qwen3 (QK-norm), Gemma 2 and Gemma 3 (text): Llama with sliding windows in some layers.

Both Gemmas have zero-centered norms before and after each sublayer and scaled embeddings. Gemma 2 caps logits; Gemma 3
has QK-norm and two RoPE thetas.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, TypeGuard

from pydantic import ConfigDict, NonNegativeInt, PositiveFloat, PositiveInt
from torch import nn

from softlook.base.errors import WeightsError
from softlook.models.llama import Llama, LlamaConfig
from softlook.ops.masks.decoder import CAUSAL
from softlook.weights.architectures.base import decoder_heads
from softlook.weights.architectures.llama import (
    IGNORED_FIELDS,
    LLAMA,
    HFLlamaLikeConfig,
    differs_only_in,
    llama_config,
    llama_fields,
)
from softlook.weights.architectures.rope import HFRopeParameters, hf_rope_parameters
from softlook.weights.schema import HFConfigBase

SLIDING, FULL = "sliding_attention", "full_attention"


class HFQwen2Config(HFLlamaLikeConfig):
    """Hugging Face's Qwen2Config: the fields that affect the output."""

    vocab_size: PositiveInt = 151936
    intermediate_size: PositiveInt = 22016
    num_key_value_heads: PositiveInt | None = 32
    max_position_embeddings: PositiveInt = 32768
    use_sliding_window: bool = False
    sliding_window: PositiveInt | None = 4096
    max_window_layers: NonNegativeInt = 28
    layer_types: list[Literal["sliding_attention", "full_attention"]] | None = None


def window_fields(hf_config: HFQwen2Config) -> dict[str, Any]:
    """The sliding window and its layers: those in `layer_types`, or those from `max_window_layers` on."""
    depth, window = hf_config.num_hidden_layers, hf_config.sliding_window if hf_config.use_sliding_window else None
    types = hf_config.layer_types
    if types is None:
        first = depth if window is None else hf_config.max_window_layers
        types = [SLIDING if i >= first else FULL for i in range(depth)]
    return layer_windows(types, window, depth)


def layer_windows(types: Sequence[str], window: int | None, depth: int) -> dict[str, Any]:
    """Convert `layer_types` and `sliding_window` to fields of LlamaConfig."""
    if len(types) != depth:
        raise WeightsError(f"layer_types must have {depth} entries, got {len(types)}")
    windowed = tuple(i for i, kind in enumerate(types) if kind == SLIDING)
    if windowed and window is None:
        raise WeightsError("layer_types has sliding_attention, but sliding_window is not set")
    return {"sliding_window": window if windowed else None, "windowed_layers": windowed or None}


def hf_layer_types(model: Llama) -> list[str]:
    """`layer_types` of a model."""
    return [FULL if window in (CAUSAL, None) else SLIDING for window in model.windows]


def hf_window_fields(model: Llama) -> dict[str, Any]:
    """Window fields of config.json for Qwen."""
    c, types = model.config, hf_layer_types(model)
    return {
        "use_sliding_window": c.sliding_window is not None,
        "sliding_window": c.sliding_window,
        "max_window_layers": types.index(SLIDING) if SLIDING in types else c.depth,
        "layer_types": types,
    }


QWEN2 = replace(
    LLAMA,
    name="Qwen2",
    model_type="qwen2",
    config_class=HFQwen2Config,
    ignored_fields=IGNORED_FIELDS | {"use_mrope"},
    head_by_class=decoder_heads("Qwen2"),
    build=lambda hf_config, head: Llama(llama_config(hf_config, head, qkv_bias=True, **window_fields(hf_config))),
    can_export=lambda model: differs_only_in(model, "causal", "qkv_bias") and model.config.qkv_bias,
    to_config=lambda model: llama_fields(model) | hf_window_fields(model),
)


class HFQwen3Config(HFQwen2Config):
    """Hugging Face's Qwen3Config: the fields that affect the output."""

    head_dim: PositiveInt | None = 128
    attention_bias: Literal[False] = False
    is_causal: Literal[True] = True  # pyright: ignore[reportIncompatibleVariableOverride]  (frozen)


QWEN3 = replace(
    LLAMA,
    name="Qwen3",
    model_type="qwen3",
    config_class=HFQwen3Config,
    head_by_class=decoder_heads("Qwen3"),
    build=lambda hf_config, head: Llama(llama_config(hf_config, head, qk_norm=True, **window_fields(hf_config))),
    can_export=lambda model: differs_only_in(model, "qk_norm") and model.config.qk_norm,
    to_config=lambda model: llama_fields(model) | {"attention_bias": False} | hf_window_fields(model),
)


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


def gemma_fields(model: Llama) -> dict[str, Any]:
    """Shared fields of config.json for Gemma."""
    c, found = model.config, llama_fields(model)
    activation = found.pop("hidden_act")
    return found | {
        "hidden_activation": activation,
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


def is_gemma(model: nn.Module, *parts: str) -> TypeGuard[Llama]:
    """Whether a model is a Llama with all GEMMA_PARTS, and only these other optional parts."""
    shared = ("attention_scale", "final_logit_softcap", *GEMMA_PARTS)
    if not differs_only_in(model, *shared, *parts) or _query_scalar(model) is None:
        return False
    return all(getattr(model.config, part) for part in GEMMA_PARTS)


GEMMA2 = replace(
    LLAMA,
    name="Gemma 2",
    model_type="gemma2",
    config_class=HFGemma2Config,
    ignored_fields=IGNORED_FIELDS | {"cache_implementation"},
    head_by_class=decoder_heads("Gemma2"),
    build=build_gemma2,
    can_export=lambda model: is_gemma(model, "attention_logit_softcap"),
    to_config=lambda model: gemma_fields(model) | {"attn_logit_softcapping": model.config.attention_logit_softcap},
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
    if sliding.kind != "default" or sliding.partial_rotary_factor not in (None, 1):
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
    return gemma_fields(model) | {
        "rope_parameters": {FULL: full, SLIDING: sliding},
    }


GEMMA3 = replace(
    LLAMA,
    name="Gemma 3",
    model_type="gemma3_text",
    config_class=HFGemma3Config,
    ignored_fields=IGNORED_FIELDS | {"cache_implementation", "_sliding_window_pattern"},
    head_by_class=GEMMA3_HEADS,
    build=build_gemma3,
    can_export=lambda model: is_gemma(model, "qk_norm", "local_rope_theta") and model.config.qk_norm,
    to_config=to_gemma3_config,
)
