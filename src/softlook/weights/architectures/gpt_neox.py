"""GPT-NeoX (Pythia) and Bloom.

GPT-NeoX: GPT with partial rotary embeddings and parallel residuals. Bloom: GPT with ALiBi and an embedding norm.
"""

from dataclasses import replace
from typing import Any, Literal

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt
from torch import nn

from softlook.base.errors import WeightsError
from softlook.models.gpt import GPT
from softlook.weights.architectures.base import (
    HF_TEXT_SIZES,
    HFDecoderConfig,
    decoder_head_rules,
    decoder_heads,
    detect_tying,
    hf_decoder_fields,
    to_hf_fields,
    unused_lm_head,
)
from softlook.weights.architectures.gpt2 import GPT2, build_gpt, matches_gpt
from softlook.weights.architectures.rope import HFRotaryConfig, hf_rope_parameters, rotary_fraction, theta_and_scaling
from softlook.weights.tensor_map import InterleavedHeads, Rename, TensorRule, qkv_names, rename_blocks, rename_layer

FIELDS = HF_TEXT_SIZES | {
    "activation": "hidden_act",
    "dropout": "hidden_dropout",
    "eps": "layer_norm_eps",
    "parallel": "use_parallel_residual",
}
"""softlook's config fields -> Hugging Face's."""
BLOCK_NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "ffn.to_up": "mlp.dense_h_to_4h",
    "ffn.to_out": "mlp.dense_4h_to_h",
}


class HFGPTNeoXConfig(HFRotaryConfig, HFDecoderConfig):
    """Hugging Face's GPTNeoXConfig: the fields that affect the output."""

    vocab_size: PositiveInt = 50432
    hidden_size: PositiveInt = 6144
    num_hidden_layers: PositiveInt = 44
    num_attention_heads: PositiveInt = 64
    intermediate_size: PositiveInt = 24576
    hidden_act: str = "gelu"
    hidden_dropout: NonNegativeFloat = 0.0
    layer_norm_eps: PositiveFloat = 1e-5
    rotary_pct: PositiveFloat = 0.25
    rotary_emb_base: PositiveFloat = 10_000.0
    use_parallel_residual: bool = True
    tie_word_embeddings: bool = False
    attention_bias: Literal[True] = True
    is_causal: Literal[True] = True


def build(hf_config: HFGPTNeoXConfig, head: str) -> GPT:
    # GPT-NeoX's older names of these two fields take precedence.
    hf_config = hf_config.model_copy(
        update={"rope_theta": hf_config.rotary_emb_base, "partial_rotary_factor": hf_config.rotary_pct}
    )
    rope_theta, rope_scaling = theta_and_scaling(hf_config)
    return build_gpt(
        hf_config,
        head,
        FIELDS,
        positions="rotary",
        rope_theta=rope_theta,
        rope_scaling=rope_scaling,
        partial_rotary_factor=rotary_fraction(hf_config),
    )


def tensor_map(model: GPT) -> list[TensorRule]:
    return [
        Rename("token_embedding.weight", "gpt_neox.embed_in.weight"),
        *rename_layer("final_norm", "gpt_neox.final_layer_norm"),
        *block_rules(model, "gpt_neox.layers", "attention"),
    ]


def block_rules(model: GPT, source: str, attention: str) -> list[TensorRule]:
    """Tensor rules of the blocks and the head of GPT-NeoX or Bloom."""
    names = BLOCK_NAMES | {"attn.to_out": f"{attention}.dense"}
    found = [*decoder_head_rules(model.config), *rename_blocks(model.config.depth, source, names)]
    for i in range(model.config.depth):
        for kind in ("weight", "bias"):
            fused = f"{source}.{i}.{attention}.query_key_value.{kind}"
            found.append(InterleavedHeads(qkv_names(f"blocks.{i}", kind), fused, model.config.heads))
    return found


def ignored_tensors(model: GPT) -> tuple[str, ...]:
    computed = r"(gpt_neox\.)?(layers\.\d+\.attention\.)?(bias|masked_bias|rotary_emb\.inv_freq)"
    return (computed, *unused_lm_head(model))


def rename_legacy(name: str) -> str:
    """The legacy name of the LM head is embed_out."""
    return name.replace("embed_out.", "lm_head.", 1) if name.startswith("embed_out.") else name


def to_config(model: GPT) -> dict[str, Any]:
    c = model.config
    rope = hf_rope_parameters(c, int(c.dim // c.heads * c.partial_rotary_factor))
    return {
        **hf_decoder_fields(c),
        **to_hf_fields(c, FIELDS),
        "attention_dropout": c.dropout,
        "rope_parameters": rope | {"partial_rotary_factor": c.partial_rotary_factor},
    }


GPT_NEOX = replace(
    GPT2,
    name="GPT-NeoX",
    model_type="gpt_neox",
    config_class=HFGPTNeoXConfig,
    ignored_fields=frozenset({"attention_dropout", "classifier_dropout"}),
    head_by_class=decoder_heads("GPTNeoX"),
    base_model_prefix="gpt_neox.",
    rename_legacy=rename_legacy,
    resolve_tying=detect_tying("gpt_neox.embed_in.weight", "lm_head.weight"),
    build=build,
    tensor_map=tensor_map,
    ignored_tensors=ignored_tensors,
    can_export=lambda model: matches_gpt(
        model, "parallel", "partial_rotary_factor", "rope_scaling", positions="rotary"
    ),
    to_config=to_config,
)


BLOOM_FIELDS = {
    "vocab_size": "vocab_size",
    "context": "seq_length",
    "dropout": "hidden_dropout",
    "eps": "layer_norm_epsilon",
}


class HFBloomConfig(HFDecoderConfig):
    """Hugging Face's BloomConfig: the fields that affect the output. Some have two names."""

    vocab_size: PositiveInt = 250880
    hidden_size: PositiveInt | None = None
    n_embed: PositiveInt | None = None
    n_layer: PositiveInt | None = None
    num_hidden_layers: PositiveInt | None = None
    n_head: PositiveInt | None = None
    num_attention_heads: PositiveInt | None = None
    seq_length: PositiveInt = 2048
    layer_norm_epsilon: PositiveFloat = 1e-5
    hidden_dropout: NonNegativeFloat = 0.0
    apply_residual_connection_post_layernorm: Literal[False] = False
    pretraining_tp: PositiveInt = 1
    slow_but_exact: bool = False
    is_causal: Literal[True] = True


def build_bloom(hf_config: HFBloomConfig, head: str) -> GPT:
    if hf_config.slow_but_exact and hf_config.pretraining_tp > 1:
        raise WeightsError("slow_but_exact with pretraining_tp > 1 is not supported: it skips biases")
    sizes = {
        "dim": _aliased_size(hf_config, "n_embed", "hidden_size", default=64),
        "depth": _aliased_size(hf_config, "n_layer", "num_hidden_layers", default=2),
        "heads": _aliased_size(hf_config, "n_head", "num_attention_heads", default=8),
    }
    return build_gpt(hf_config, head, BLOOM_FIELDS, **sizes, positions="alibi", embedding_norm=True)


def _aliased_size(hf_config: HFBloomConfig, name: str, other_name: str, *, default: int) -> int:
    """A size that may be given under two names."""
    one, other = getattr(hf_config, name), getattr(hf_config, other_name)
    if one is not None and other is not None and one != other:
        raise WeightsError(f"{name} and {other_name} are the same size, got {one} and {other}")
    return next((size for size in (one, other) if size is not None), default)


def bloom_tensor_map(model: GPT) -> list[TensorRule]:
    return [
        Rename("token_embedding.weight", "transformer.word_embeddings.weight"),
        *rename_layer("embedding_norm", "transformer.word_embeddings_layernorm"),
        *rename_layer("final_norm", "transformer.ln_f"),
        *block_rules(model, "transformer.h", "self_attention"),
    ]


def to_bloom_config(model: GPT) -> dict[str, Any]:
    c = model.config
    sizes = {"hidden_size": c.dim, "n_layer": c.depth, "n_head": c.heads, "attention_dropout": c.dropout}
    return {**hf_decoder_fields(c), **to_hf_fields(c, BLOOM_FIELDS), **sizes}


def can_export_bloom(model: nn.Module) -> bool:
    if not matches_gpt(model, positions="alibi", embedding_norm=True):
        return False
    return model.config.activation == "gelu_tanh" and model.config.hidden in (None, 4 * model.config.dim)


BLOOM_IGNORED = """
    attention_dropout attention_softmax_in_fp32 bias_dropout_fusion masked_softmax_fusion offset_alibi
    skip_bias_add skip_bias_add_qkv
"""
BLOOM = replace(
    GPT2,
    name="Bloom",
    model_type="bloom",
    config_class=HFBloomConfig,
    ignored_fields=frozenset(BLOOM_IGNORED.split()),
    head_by_class=decoder_heads("Bloom"),
    resolve_tying=detect_tying("transformer.word_embeddings.weight", "lm_head.weight"),
    build=build_bloom,
    tensor_map=bloom_tensor_map,
    ignored_tensors=unused_lm_head,
    can_export=can_export_bloom,
    to_config=to_bloom_config,
)
