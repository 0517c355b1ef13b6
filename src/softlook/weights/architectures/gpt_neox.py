"""GPT-NeoX (Pythia) and Bloom.

GPT-NeoX: GPT with partial rotary embeddings and parallel residuals. Bloom: GPT with ALiBi and an embedding norm.
"""

from typing import Any, Literal

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt
from torch import nn

from softlook.base.errors import WeightsError
from softlook.models.gpt import GPT, GPTConfig
from softlook.weights.architectures.base import HFArchitecture, detect_tying, from_hf_activation, to_hf_activation
from softlook.weights.architectures.gpt2 import (
    HFGPTLikeConfig,
    head_fields,
    head_rules,
    hf_head_fields,
    matches_gpt,
    unused_lm_head,
)
from softlook.weights.architectures.rope import HFRotaryConfig, hf_rope_parameters, rotary_fraction, theta_and_scaling
from softlook.weights.tensor_map import InterleavedHeads, Rename, TensorRule, rename_layer

HEAD_BY_CLASS = {
    "GPTNeoXForCausalLM": "causal_lm",
    "GPTNeoXModel": "hidden_states",
    "GPTNeoXForSequenceClassification": "classification",
}


class HFGPTNeoXConfig(HFRotaryConfig, HFGPTLikeConfig):
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
    return GPT(
        GPTConfig(
            vocab_size=hf_config.vocab_size,
            context=hf_config.max_position_embeddings,
            dim=hf_config.hidden_size,
            depth=hf_config.num_hidden_layers,
            heads=hf_config.num_attention_heads,
            hidden=hf_config.intermediate_size,
            activation=from_hf_activation(hf_config.hidden_act),
            dropout=hf_config.hidden_dropout,
            eps=hf_config.layer_norm_eps,
            tie_embeddings=hf_config.tie_word_embeddings,
            positions="rotary",
            rope_theta=rope_theta,
            rope_scaling=rope_scaling,
            partial_rotary_factor=rotary_fraction(hf_config),
            parallel=hf_config.use_parallel_residual,
            **head_fields(hf_config, head),
        )
    )


def tensor_map(model: GPT) -> list[TensorRule]:
    found: list[TensorRule] = [
        Rename("token_embedding.weight", "gpt_neox.embed_in.weight"),
        *rename_layer("final_norm", "gpt_neox.final_layer_norm"),
        *head_rules(model),
    ]
    for i in range(model.config.depth):
        found += block_rules(f"blocks.{i}", f"gpt_neox.layers.{i}", "attention", model.config.heads)
    return found


def block_rules(target: str, source: str, attention: str, heads: int) -> list[TensorRule]:
    """Tensor rules of one block of GPT-NeoX or Bloom."""
    found = [
        *rename_layer(f"{target}.attn_norm", f"{source}.input_layernorm"),
        *rename_layer(f"{target}.ffn_norm", f"{source}.post_attention_layernorm"),
        *rename_layer(f"{target}.attn.to_out", f"{source}.{attention}.dense"),
        *rename_layer(f"{target}.ffn.to_up", f"{source}.mlp.dense_h_to_4h"),
        *rename_layer(f"{target}.ffn.to_out", f"{source}.mlp.dense_4h_to_h"),
    ]
    for kind in ("weight", "bias"):
        parts = tuple(f"{target}.attn.to_{part}.{kind}" for part in ("query", "key", "value"))
        found.append(InterleavedHeads(parts, f"{source}.{attention}.query_key_value.{kind}", heads))
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
        **hf_head_fields(model, HEAD_BY_CLASS),
        "vocab_size": c.vocab_size,
        "max_position_embeddings": c.context,
        "hidden_size": c.dim,
        "num_hidden_layers": c.depth,
        "num_attention_heads": c.heads,
        "intermediate_size": 4 * c.dim if c.hidden is None else c.hidden,
        "hidden_act": to_hf_activation(c.activation),
        "hidden_dropout": c.dropout,
        "attention_dropout": c.dropout,
        "layer_norm_eps": c.eps,
        "use_parallel_residual": c.parallel,
        "rope_parameters": rope | {"partial_rotary_factor": c.partial_rotary_factor},
    }


def can_export(model: nn.Module) -> bool:
    return matches_gpt(model, "parallel", "partial_rotary_factor", "rope_scaling", positions="rotary")


def is_base_model(model: GPT) -> bool:
    return model.config.head == "hidden_states"


ARCHITECTURE = HFArchitecture(
    name="GPT-NeoX",
    model_type="gpt_neox",
    config_class=HFGPTNeoXConfig,
    ignored_fields=frozenset({"attention_dropout", "classifier_dropout"}),
    head_by_class=HEAD_BY_CLASS,
    base_model_prefix="gpt_neox.",
    rename_legacy=rename_legacy,
    resolve_tying=detect_tying("gpt_neox.embed_in.weight", "lm_head.weight"),
    build=build,
    tensor_map=tensor_map,
    ignored_tensors=ignored_tensors,
    can_export=can_export,
    is_base_model=is_base_model,
    to_config=to_config,
)


BLOOM_HEADS = {
    "BloomForCausalLM": "causal_lm",
    "BloomModel": "hidden_states",
    "BloomForSequenceClassification": "classification",
}


class HFBloomConfig(HFGPTLikeConfig):
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
    tie_word_embeddings: bool = True
    is_causal: Literal[True] = True


def build_bloom(hf_config: HFBloomConfig, head: str) -> GPT:
    if hf_config.slow_but_exact and hf_config.pretraining_tp > 1:
        raise WeightsError("slow_but_exact with pretraining_tp > 1 is not supported: it skips biases")
    return GPT(
        GPTConfig(
            vocab_size=hf_config.vocab_size,
            context=hf_config.seq_length,
            dim=_aliased_size("n_embed", hf_config.n_embed, "hidden_size", hf_config.hidden_size, default=64),
            depth=_aliased_size(
                "n_layer", hf_config.n_layer, "num_hidden_layers", hf_config.num_hidden_layers, default=2
            ),
            heads=_aliased_size(
                "n_head", hf_config.n_head, "num_attention_heads", hf_config.num_attention_heads, default=8
            ),
            dropout=hf_config.hidden_dropout,
            eps=hf_config.layer_norm_epsilon,
            tie_embeddings=hf_config.tie_word_embeddings,
            positions="alibi",
            embedding_norm=True,
            **head_fields(hf_config, head),
        )
    )


def _aliased_size(name: str, one: int | None, other_name: str, other: int | None, *, default: int) -> int:
    """A size that may be given under two names."""
    if one is not None and other is not None and one != other:
        raise WeightsError(f"{name} and {other_name} are the same size, got {one} and {other}")
    return next((size for size in (one, other) if size is not None), default)


def bloom_tensor_map(model: GPT) -> list[TensorRule]:
    found: list[TensorRule] = [
        Rename("token_embedding.weight", "transformer.word_embeddings.weight"),
        *rename_layer("embedding_norm", "transformer.word_embeddings_layernorm"),
        *rename_layer("final_norm", "transformer.ln_f"),
        *head_rules(model),
    ]
    for i in range(model.config.depth):
        found += block_rules(f"blocks.{i}", f"transformer.h.{i}", "self_attention", model.config.heads)
    return found


def to_bloom_config(model: GPT) -> dict[str, Any]:
    c = model.config
    return {
        **hf_head_fields(model, BLOOM_HEADS),
        "vocab_size": c.vocab_size,
        "seq_length": c.context,
        "hidden_size": c.dim,
        "n_layer": c.depth,
        "n_head": c.heads,
        "hidden_dropout": c.dropout,
        "attention_dropout": c.dropout,
        "layer_norm_epsilon": c.eps,
    }


def can_export_bloom(model: nn.Module) -> bool:
    if not matches_gpt(model, positions="alibi", embedding_norm=True):
        return False
    return model.config.activation == "gelu_tanh" and model.config.hidden in (None, 4 * model.config.dim)


BLOOM_IGNORED = """
    attention_dropout attention_softmax_in_fp32 bias_dropout_fusion masked_softmax_fusion offset_alibi
    skip_bias_add skip_bias_add_qkv
"""
BLOOM = HFArchitecture(
    name="Bloom",
    model_type="bloom",
    config_class=HFBloomConfig,
    ignored_fields=frozenset(BLOOM_IGNORED.split()),
    head_by_class=BLOOM_HEADS,
    base_model_prefix="transformer.",
    resolve_tying=detect_tying("transformer.word_embeddings.weight", "lm_head.weight"),
    build=build_bloom,
    tensor_map=bloom_tensor_map,
    ignored_tensors=unused_lm_head,
    can_export=can_export_bloom,
    is_base_model=is_base_model,
    to_config=to_bloom_config,
)
