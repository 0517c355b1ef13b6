"""Llama, Mistral and Phi-3; shared code of Llama-like decoders."""

from dataclasses import replace
from typing import Any, Literal, TypeGuard

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt
from torch import nn

from softlook.base.errors import WeightsError
from softlook.models.llama import Llama, LlamaConfig
from softlook.ops.masks.decoder import CAUSAL
from softlook.weights.architectures.base import (
    HF_TEXT_SIZES,
    HFArchitecture,
    HFDecoderConfig,
    decoder_head_fields,
    decoder_head_rules,
    decoder_heads,
    detect_tying,
    from_hf_fields,
    hf_decoder_fields,
    to_hf_fields,
    unused_lm_head,
)
from softlook.weights.architectures.rope import (
    HFRopeParameters,
    HFRotaryConfig,
    hf_rope_parameters,
    rotary_fraction,
    theta_and_scaling,
)
from softlook.weights.tensor_map import Concat, Rename, TensorRule, qkv_names, rename_blocks

FIELDS = HF_TEXT_SIZES | {
    "kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "activation": "hidden_act",
    "eps": "rms_norm_eps",
    "dropout": "attention_dropout",
    "causal": "is_causal",
}
"""softlook's config fields -> Hugging Face's."""


class HFLlamaLikeConfig(HFRotaryConfig, HFDecoderConfig):
    """Fields shared by Llama, Mistral, Phi-3, Qwen and Gemma."""

    vocab_size: PositiveInt = 32000
    hidden_size: PositiveInt = 4096
    intermediate_size: PositiveInt = 11008
    num_hidden_layers: PositiveInt = 32
    num_attention_heads: PositiveInt = 32
    num_key_value_heads: PositiveInt | None = None
    head_dim: PositiveInt | None = None
    hidden_act: str = "silu"
    rms_norm_eps: PositiveFloat = 1e-6
    attention_dropout: NonNegativeFloat = 0.0
    tie_word_embeddings: bool = False
    is_causal: bool = True


class HFLlamaConfig(HFLlamaLikeConfig):
    """Hugging Face's LlamaConfig: the fields that affect the output."""

    attention_bias: bool = False
    mlp_bias: bool = False


IGNORED_FIELDS = frozenset({"is_llama_config", "pretraining_tp", "rope_interleaved"})


def llama_config(hf_config: HFLlamaLikeConfig, head: str, **changes: Any) -> LlamaConfig:
    """Convert a Hugging Face config to a LlamaConfig; `changes` override fields."""
    rope_theta, rope_scaling = theta_and_scaling(hf_config)
    if "partial_rotary_factor" not in changes and rotary_fraction(hf_config) != 1:
        raise WeightsError("partial_rotary_factor must be 1 for this architecture of Hugging Face")
    rope = {"rope_theta": rope_theta, "rope_scaling": rope_scaling}
    return LlamaConfig(**from_hf_fields(hf_config, FIELDS) | rope | decoder_head_fields(hf_config, head) | changes)


def build(hf_config: HFLlamaConfig, head: str) -> Llama:
    if hf_config.attention_bias or hf_config.mlp_bias:
        raise WeightsError("attention_bias and mlp_bias are not supported for Llama")
    return Llama(llama_config(hf_config, head))


PRE_NORM = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
SANDWICH = {
    "attn_norm": "input_layernorm",
    "attn_post_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "ffn_post_norm": "post_feedforward_layernorm",
}
QK_NORM = {"attn.query_norm": "self_attn.q_norm", "attn.key_norm": "self_attn.k_norm"}
PROJECTIONS = {
    "attn.to_query": "self_attn.q_proj",
    "attn.to_key": "self_attn.k_proj",
    "attn.to_value": "self_attn.v_proj",
}
FEED_FORWARD = {"ffn.to_gate": "mlp.gate_proj", "ffn.to_up": "mlp.up_proj", "ffn.to_out": "mlp.down_proj"}


def tensor_map(model: Llama) -> list[TensorRule]:
    config = model.config
    names = {
        **(SANDWICH if config.sandwich_norm else PRE_NORM),
        **(QK_NORM if config.qk_norm else {}),
        **FEED_FORWARD,
        "attn.to_out": "self_attn.o_proj",
    }
    kinds = ("weight", "bias") if config.qkv_bias else ("weight",)
    return [
        Rename("token_embedding.weight", "model.embed_tokens.weight"),
        Rename("final_norm.weight", "model.norm.weight"),
        *decoder_head_rules(config),
        *rename_blocks(config.depth, "model.layers", names, "weight"),
        *rename_blocks(config.depth, "model.layers", PROJECTIONS, *kinds),
    ]


def llama_fields(model: Llama) -> dict[str, Any]:
    """Shared fields of config.json for a Llama-like decoder."""
    c = model.config
    return {
        **to_hf_fields(c, FIELDS),
        "intermediate_size": c.dim * 8 // 3 if c.hidden is None else c.hidden,
        "num_key_value_heads": c.heads if c.kv_heads is None else c.kv_heads,
        "head_dim": model.head_dim,
        "rope_parameters": hf_rope_parameters(c, model.head_dim),
        **hf_decoder_fields(c),
    }


OPTIONAL_PARTS = """
    attention_logit_softcap attention_scale causal final_logit_softcap local_rope_theta partial_rotary_factor qk_norm
    qkv_bias sandwich_norm scale_embeddings zero_centered_norm
"""
"""Fields of LlamaConfig that not every Llama-like architecture supports."""


def differs_only_in(model: nn.Module, *parts: str) -> TypeGuard[Llama]:
    """Whether a model is a Llama that uses only these of the OPTIONAL_PARTS."""
    if not isinstance(model, Llama):
        return False
    default = LlamaConfig()
    return all(getattr(model.config, part) == getattr(default, part) for part in {*OPTIONAL_PARTS.split()} - {*parts})


def to_config(model: Llama) -> dict[str, Any]:
    return llama_fields(model) | {"attention_bias": False, "mlp_bias": False}


def has_window(model: Llama) -> bool:
    """Whether some layer has a sliding window."""
    return any(window not in (CAUSAL, None) for window in model.windows)


def heads_divide_width(model: Llama) -> bool:
    """Whether `heads` divides `dim`, which transformers requires of Llama but not of Mistral."""
    return model.config.dim % model.config.heads == 0


LLAMA = HFArchitecture(
    name="Llama",
    model_type="llama",
    config_class=HFLlamaConfig,
    ignored_fields=IGNORED_FIELDS,
    head_by_class=decoder_heads("Llama"),
    base_model_prefix="model.",
    resolve_tying=detect_tying("model.embed_tokens.weight", "lm_head.weight"),
    build=build,
    tensor_map=tensor_map,
    ignored_tensors=lambda model: (
        r"(model\.)?(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq",
        *unused_lm_head(model),
    ),
    can_export=lambda model: differs_only_in(model, "causal") and not has_window(model) and heads_divide_width(model),
    to_config=to_config,
)


class HFMistralConfig(HFLlamaLikeConfig):
    """Hugging Face's MistralConfig: the fields that affect the output."""

    intermediate_size: PositiveInt = 14336
    num_key_value_heads: PositiveInt | None = 8
    max_position_embeddings: PositiveInt = 131072
    sliding_window: PositiveInt | None = 4096


def can_export_mistral(model: nn.Module) -> bool:
    if not differs_only_in(model, "causal"):
        return False
    return len(set(model.windows)) == 1 if has_window(model) else not heads_divide_width(model)


MISTRAL = replace(
    LLAMA,
    name="Mistral",
    model_type="mistral",
    config_class=HFMistralConfig,
    head_by_class=decoder_heads("Mistral"),
    build=lambda hf_config, head: Llama(llama_config(hf_config, head, sliding_window=hf_config.sliding_window)),
    can_export=can_export_mistral,
    to_config=lambda model: (
        llama_fields(model) | {"sliding_window": model.config.sliding_window if has_window(model) else None}
    ),
)


FUSED = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")


class HFPhi3Config(HFLlamaLikeConfig):
    """Hugging Face's Phi3Config: the fields that affect the output."""

    vocab_size: PositiveInt = 32064
    hidden_size: PositiveInt = 3072
    intermediate_size: PositiveInt = 8192
    max_position_embeddings: PositiveInt = 4096
    rms_norm_eps: PositiveFloat = 1e-5
    sliding_window: PositiveInt | None = None
    pad_token_id: int | None = 32000
    is_causal: Literal[True] = True  # pyright: ignore[reportIncompatibleVariableOverride]  (frozen)


def build_phi3(hf_config: HFPhi3Config, head: str) -> Llama:
    rope = hf_config.rope_scaling or hf_config.rope_parameters or HFRopeParameters()
    if rope.kind != "default":
        raise WeightsError(
            f"rope_type {rope.kind!r:.40} is not supported for Phi-3, only 'default': longrope has different factors "
            "for short and long texts"
        )
    return Llama(
        llama_config(
            hf_config, head, sliding_window=hf_config.sliding_window, partial_rotary_factor=rotary_fraction(hf_config)
        )
    )


def phi3_tensor_map(model: Llama) -> list[TensorRule]:
    fused = tuple(f"{name}.weight" for name in FUSED)
    found = [rule for rule in tensor_map(model) if not rule.source.endswith(fused)]
    c, width = model.config, model.head_dim
    kv_width = (c.heads if c.kv_heads is None else c.kv_heads) * width
    for i in range(c.depth):
        target, source = f"blocks.{i}", f"model.layers.{i}"
        qkv, gates = qkv_names(target), (f"{target}.ffn.to_gate.weight", f"{target}.ffn.to_up.weight")
        found.append(Concat(qkv, f"{source}.self_attn.qkv_proj.weight", sizes=(c.heads * width, kv_width, kv_width)))
        found.append(Concat(gates, f"{source}.mlp.gate_up_proj.weight"))
    return found


def to_phi3_config(model: Llama) -> dict[str, Any]:
    c, found = model.config, llama_fields(model)
    rope = found["rope_parameters"] | {"partial_rotary_factor": c.partial_rotary_factor}
    # Hugging Face's default padding id may exceed this vocabulary.
    return found | {"rope_parameters": rope, "sliding_window": c.sliding_window, "pad_token_id": c.pad_id}


def can_export_phi3(model: nn.Module) -> bool:
    """A model whose heads are rotated fully is exported as Llama or Mistral."""
    if not differs_only_in(model, "partial_rotary_factor") or model.config.partial_rotary_factor == 1:
        return False
    return model.config.rope_scaling is None and len(set(model.windows)) == 1


PHI3 = replace(
    LLAMA,
    name="Phi-3",
    model_type="phi3",
    config_class=HFPhi3Config,
    ignored_fields=IGNORED_FIELDS | {"embd_pdrop", "resid_pdrop"},
    head_by_class=decoder_heads("Phi3"),
    build=build_phi3,
    tensor_map=phi3_tensor_map,
    can_export=can_export_phi3,
    to_config=to_phi3_config,
)
