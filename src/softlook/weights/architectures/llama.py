"""Llama, Mistral and Phi-3; shared code of Llama-like decoders."""

from dataclasses import replace
from typing import Any, Literal, TypeGuard

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt
from torch import nn

from softlook.base.errors import WeightsError
from softlook.models.llama import Llama, LlamaConfig
from softlook.ops.masks.decoder import CAUSAL
from softlook.weights.architectures.base import HFArchitecture, detect_tying, from_hf_activation, to_hf_activation
from softlook.weights.architectures.encoders import HFLabelConfig, hf_label_fields, label_fields
from softlook.weights.architectures.rope import (
    HFRopeParameters,
    HFRotaryConfig,
    hf_rope_parameters,
    rotary_fraction,
    theta_and_scaling,
)
from softlook.weights.tensor_map import Concat, Rename, TensorRule, rename_layer


class HFLlamaLikeConfig(HFRotaryConfig, HFLabelConfig):
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
    pad_token_id: int | None = None


class HFLlamaConfig(HFLlamaLikeConfig):
    """Hugging Face's LlamaConfig: the fields that affect the output."""

    attention_bias: bool = False
    mlp_bias: bool = False


resolve_tying = detect_tying("model.embed_tokens.weight", "lm_head.weight")
IGNORED_FIELDS = frozenset({"is_llama_config", "pretraining_tp", "rope_interleaved"})


def llama_config(hf_config: HFLlamaLikeConfig, head: str, **changes: Any) -> LlamaConfig:
    """Convert a Hugging Face config to a LlamaConfig; `changes` override fields."""
    rope_theta, rope_scaling = theta_and_scaling(hf_config)
    if "partial_rotary_factor" not in changes and rotary_fraction(hf_config) != 1:
        raise WeightsError("partial_rotary_factor must be 1 for this architecture of Hugging Face")
    if head == "classification":
        changes |= {"pad_id": hf_config.pad_token_id, **label_fields(hf_config, head)}
    shared: dict[str, Any] = {
        "vocab_size": hf_config.vocab_size,
        "context": hf_config.max_position_embeddings,
        "dim": hf_config.hidden_size,
        "depth": hf_config.num_hidden_layers,
        "heads": hf_config.num_attention_heads,
        "kv_heads": hf_config.num_key_value_heads,
        "head_dim": hf_config.head_dim,
        "hidden": hf_config.intermediate_size,
        "activation": from_hf_activation(hf_config.hidden_act),
        "eps": hf_config.rms_norm_eps,
        "rope_theta": rope_theta,
        "rope_scaling": rope_scaling,
        "tie_embeddings": hf_config.tie_word_embeddings,
        "dropout": hf_config.attention_dropout,
        "causal": hf_config.is_causal,
        "head": head,
    }
    return LlamaConfig(**shared | changes)


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


def tensor_map(model: Llama) -> list[TensorRule]:
    config = model.config
    found: list[TensorRule] = [
        Rename("token_embedding.weight", "model.embed_tokens.weight"),
        Rename("final_norm.weight", "model.norm.weight"),
    ]
    if config.head == "causal_lm" and not config.tie_embeddings:
        found += rename_layer("lm_head", "lm_head", "weight")
    if config.head == "classification":
        found += rename_layer("lm_head.to_classes", "score", "weight")
    for i in range(config.depth):
        target, source = f"blocks.{i}", f"model.layers.{i}"
        names = {
            **(SANDWICH if config.sandwich_norm else PRE_NORM),
            **(QK_NORM if config.qk_norm else {}),
            "attn.to_out": "self_attn.o_proj",
            "ffn.to_gate": "mlp.gate_proj",
            "ffn.to_up": "mlp.up_proj",
            "ffn.to_out": "mlp.down_proj",
        }
        for target_name, source_name in names.items():
            found += rename_layer(f"{target}.{target_name}", f"{source}.{source_name}", "weight")
        for target_name, source_name in (("to_query", "q_proj"), ("to_key", "k_proj"), ("to_value", "v_proj")):
            kinds = ("weight", "bias") if config.qkv_bias else ("weight",)
            found += rename_layer(f"{target}.attn.{target_name}", f"{source}.self_attn.{source_name}", *kinds)
    return found


def ignored_tensors(model: Llama) -> tuple[str, ...]:
    inv_freq = (r"(model\.)?(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq",)
    no_lm_head = model.config.tie_embeddings or model.config.head != "causal_lm"
    return (*inv_freq, r"lm_head\.weight") if no_lm_head else inv_freq


def llama_fields(model: Llama, name: str) -> dict[str, Any]:
    """Shared fields of config.json for a Llama-like decoder."""
    c = model.config
    return {
        "architectures": [hf_class for hf_class, head in decoder_heads(name).items() if head == c.head],
        "vocab_size": c.vocab_size,
        "max_position_embeddings": c.context,
        "hidden_size": c.dim,
        "intermediate_size": c.dim * 8 // 3 if c.hidden is None else c.hidden,
        "num_hidden_layers": c.depth,
        "num_attention_heads": c.heads,
        "num_key_value_heads": c.heads if c.kv_heads is None else c.kv_heads,
        "head_dim": model.head_dim,
        "hidden_act": to_hf_activation(c.activation),
        "rms_norm_eps": c.eps,
        "attention_dropout": c.dropout,
        "rope_parameters": hf_rope_parameters(c, model.head_dim),
        "tie_word_embeddings": c.tie_embeddings,
        "is_causal": c.causal,
        **({"pad_token_id": c.pad_id} if c.head == "classification" else {}),
        **hf_label_fields(c),
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
    return llama_fields(model, "Llama") | {"attention_bias": False, "mlp_bias": False}


def has_window(model: Llama) -> bool:
    """Whether some layer has a sliding window."""
    return any(window not in (CAUSAL, None) for window in model.windows)


def heads_divide_width(model: Llama) -> bool:
    """Whether `heads` divides `dim`, which transformers requires of Llama but not of Mistral."""
    return model.config.dim % model.config.heads == 0


def can_export(model: nn.Module) -> bool:
    return differs_only_in(model, "causal") and not has_window(model) and heads_divide_width(model)


def is_base_model(model: Llama) -> bool:
    return model.config.head == "hidden_states"


def decoder_heads(name: str) -> dict[str, str]:
    """Hugging Face classes of a decoder -> head."""
    return {
        f"{name}ForCausalLM": "causal_lm",
        f"{name}Model": "hidden_states",
        f"{name}ForSequenceClassification": "classification",
    }


ARCHITECTURE = HFArchitecture(
    name="Llama",
    model_type="llama",
    config_class=HFLlamaConfig,
    ignored_fields=IGNORED_FIELDS,
    head_by_class=decoder_heads("Llama"),
    base_model_prefix="model.",
    resolve_tying=resolve_tying,
    build=build,
    tensor_map=tensor_map,
    ignored_tensors=ignored_tensors,
    can_export=can_export,
    is_base_model=is_base_model,
    to_config=to_config,
)


class HFMistralConfig(HFLlamaLikeConfig):
    """Hugging Face's MistralConfig: the fields that affect the output."""

    intermediate_size: PositiveInt = 14336
    num_key_value_heads: PositiveInt | None = 8
    max_position_embeddings: PositiveInt = 131072
    sliding_window: PositiveInt | None = 4096


def build_mistral(hf_config: HFMistralConfig, head: str) -> Llama:
    return Llama(llama_config(hf_config, head, sliding_window=hf_config.sliding_window))


def to_mistral_config(model: Llama) -> dict[str, Any]:
    return llama_fields(model, "Mistral") | {
        "sliding_window": model.config.sliding_window if has_window(model) else None
    }


def can_export_mistral(model: nn.Module) -> bool:
    if not differs_only_in(model, "causal"):
        return False
    return len(set(model.windows)) == 1 if has_window(model) else not heads_divide_width(model)


MISTRAL = replace(
    ARCHITECTURE,
    name="Mistral",
    model_type="mistral",
    config_class=HFMistralConfig,
    head_by_class=decoder_heads("Mistral"),
    build=build_mistral,
    can_export=can_export_mistral,
    to_config=to_mistral_config,
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
    kind = rope.rope_type or rope.type or "default"
    if kind != "default":
        raise WeightsError(
            f"rope_type {kind!r:.40} is not supported for Phi-3, only 'default': longrope has different factors for "
            "short and long texts"
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
        qkv = tuple(f"{target}.attn.to_{part}.weight" for part in ("query", "key", "value"))
        gates = (f"{target}.ffn.to_gate.weight", f"{target}.ffn.to_up.weight")
        found.append(Concat(qkv, f"{source}.self_attn.qkv_proj.weight", sizes=(c.heads * width, kv_width, kv_width)))
        found.append(Concat(gates, f"{source}.mlp.gate_up_proj.weight"))
    return found


def to_phi3_config(model: Llama) -> dict[str, Any]:
    c, found = model.config, llama_fields(model, "Phi3")
    rope = found["rope_parameters"] | {"partial_rotary_factor": c.partial_rotary_factor}
    # Hugging Face's default padding id may exceed this vocabulary.
    return found | {"rope_parameters": rope, "sliding_window": c.sliding_window, "pad_token_id": c.pad_id}


def can_export_phi3(model: nn.Module) -> bool:
    """A model whose heads are rotated fully is exported as Llama or Mistral."""
    if not differs_only_in(model, "partial_rotary_factor") or model.config.partial_rotary_factor == 1:
        return False
    return model.config.rope_scaling is None and len(set(model.windows)) == 1


PHI3 = replace(
    ARCHITECTURE,
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
