"""Qwen2 (QKV biases) and Qwen3 (QK-norm), with sliding windows."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from pydantic import NonNegativeInt, PositiveInt
from torch import nn

from softlook.base.errors import WeightsError
from softlook.models.llama import Llama
from softlook.ops.masks.decoder import CAUSAL
from softlook.weights.architectures.llama import (
    ARCHITECTURE,
    IGNORED_FIELDS,
    HFLlamaLikeConfig,
    decoder_heads,
    differs_only_in,
    llama_config,
    llama_fields,
)

SLIDING, FULL = "sliding_attention", "full_attention"


class HFQwenLikeConfig(HFLlamaLikeConfig):
    """Fields shared by Qwen2 and Qwen3."""

    vocab_size: PositiveInt = 151936
    intermediate_size: PositiveInt = 22016
    num_key_value_heads: PositiveInt | None = 32
    max_position_embeddings: PositiveInt = 32768
    use_sliding_window: bool = False
    sliding_window: PositiveInt | None = 4096
    max_window_layers: NonNegativeInt = 28
    layer_types: list[Literal["sliding_attention", "full_attention"]] | None = None


class HFQwen2Config(HFQwenLikeConfig):
    """Hugging Face's Qwen2Config: the fields that affect the output."""


def build_qwen2(hf_config: HFQwen2Config, head: str) -> Llama:
    return Llama(llama_config(hf_config, head, qkv_bias=True, **window_fields(hf_config)))


def window_fields(hf_config: HFQwenLikeConfig) -> dict[str, Any]:
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


def to_qwen2_config(model: Llama) -> dict[str, Any]:
    return llama_fields(model, "Qwen2") | hf_window_fields(model)


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


def can_export_qwen2(model: nn.Module) -> bool:
    return differs_only_in(model, "causal", "qkv_bias") and model.config.qkv_bias


QWEN2 = replace(
    ARCHITECTURE,
    name="Qwen2",
    model_type="qwen2",
    config_class=HFQwen2Config,
    ignored_fields=IGNORED_FIELDS | {"use_mrope"},
    head_by_class=decoder_heads("Qwen2"),
    build=build_qwen2,
    can_export=can_export_qwen2,
    to_config=to_qwen2_config,
)


class HFQwen3Config(HFQwenLikeConfig):
    """Hugging Face's Qwen3Config: the fields that affect the output."""

    head_dim: PositiveInt | None = 128
    attention_bias: Literal[False] = False
    is_causal: Literal[True] = True  # pyright: ignore[reportIncompatibleVariableOverride]  (frozen)


def build_qwen3(hf_config: HFQwen3Config, head: str) -> Llama:
    return Llama(llama_config(hf_config, head, qk_norm=True, **window_fields(hf_config)))


def to_qwen3_config(model: Llama) -> dict[str, Any]:
    return llama_fields(model, "Qwen3") | {"attention_bias": False} | hf_window_fields(model)


def can_export_qwen3(model: nn.Module) -> bool:
    return differs_only_in(model, "qk_norm") and model.config.qk_norm


QWEN3 = replace(
    ARCHITECTURE,
    name="Qwen3",
    model_type="qwen3",
    config_class=HFQwen3Config,
    head_by_class=decoder_heads("Qwen3"),
    build=build_qwen3,
    can_export=can_export_qwen3,
    to_config=to_qwen3_config,
)
