"""OPT: GPT with ReLU and a position offset of 2.

One size has post-norm and projected embeddings.
"""

from typing import Any, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt
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
from softlook.weights.tensor_map import Rename, TensorRule, rename_layer

HEAD_BY_CLASS = {
    "OPTForCausalLM": "causal_lm",
    "OPTModel": "hidden_states",
    "OPTForSequenceClassification": "classification",
}
OFFSET, EPS = 2, 1e-5
"""Unused rows of the position embedding, and epsilon of the norms; not part of the config."""


class HFOPTConfig(HFGPTLikeConfig):
    """Hugging Face's OPTConfig: the fields that affect the output."""

    vocab_size: PositiveInt = 50272
    hidden_size: PositiveInt = 768
    num_hidden_layers: PositiveInt = 12
    ffn_dim: PositiveInt = 3072
    max_position_embeddings: PositiveInt = 2048
    do_layer_norm_before: bool = True
    without_final_norm: bool = Field(default=False, alias="_remove_final_layer_norm")
    word_embed_proj_dim: PositiveInt | None = None
    dropout: NonNegativeFloat = 0.1
    num_attention_heads: PositiveInt = 12
    activation_function: str = "relu"
    enable_bias: Literal[True] = True
    layer_norm_elementwise_affine: Literal[True] = True
    pad_token_id: int | None = 1
    tie_word_embeddings: bool = True
    is_causal: Literal[True] = True


def build(hf_config: HFOPTConfig, head: str) -> GPT:
    if hf_config.do_layer_norm_before and hf_config.without_final_norm:
        raise WeightsError("_remove_final_layer_norm is not supported with do_layer_norm_before")
    return GPT(
        GPTConfig(
            vocab_size=hf_config.vocab_size,
            context=hf_config.max_position_embeddings,
            dim=hf_config.hidden_size,
            depth=hf_config.num_hidden_layers,
            heads=hf_config.num_attention_heads,
            hidden=hf_config.ffn_dim,
            activation=from_hf_activation(hf_config.activation_function),
            dropout=hf_config.dropout,
            eps=EPS,
            tie_embeddings=hf_config.tie_word_embeddings,
            position_offset=OFFSET,
            norm="pre" if hf_config.do_layer_norm_before else "post",
            embedding_dim=hf_config.word_embed_proj_dim,
            **head_fields(hf_config, head),
        )
    )


def tensor_map(model: GPT) -> list[TensorRule]:
    c = model.config
    found: list[TensorRule] = [
        Rename("token_embedding.weight", "model.decoder.embed_tokens.weight"),
        Rename("position_embedding.weight", "model.decoder.embed_positions.weight"),
        *head_rules(model),
    ]
    if c.norm == "pre":
        found += rename_layer("final_norm", "model.decoder.final_layer_norm")
    if c.embedding_dim not in (None, c.dim):
        found += rename_layer("project_in", "model.decoder.project_in", "weight")
        found += rename_layer("project_out", "model.decoder.project_out", "weight")
    for i in range(c.depth):
        target, source = f"blocks.{i}", f"model.decoder.layers.{i}"
        for target_name, source_name in (("query", "q"), ("key", "k"), ("value", "v"), ("out", "out")):
            found += rename_layer(f"{target}.attn.to_{target_name}", f"{source}.self_attn.{source_name}_proj")
        found += [
            *rename_layer(f"{target}.attn_norm", f"{source}.self_attn_layer_norm"),
            *rename_layer(f"{target}.ffn_norm", f"{source}.final_layer_norm"),
            *rename_layer(f"{target}.ffn.to_up", f"{source}.fc1"),
            *rename_layer(f"{target}.ffn.to_out", f"{source}.fc2"),
        ]
    return found


def to_config(model: GPT) -> dict[str, Any]:
    c = model.config
    return {
        "pad_token_id": None,
        **hf_head_fields(model, HEAD_BY_CLASS),
        "vocab_size": c.vocab_size,
        "max_position_embeddings": c.context,
        "hidden_size": c.dim,
        "num_hidden_layers": c.depth,
        "num_attention_heads": c.heads,
        "ffn_dim": 4 * c.dim if c.hidden is None else c.hidden,
        "word_embed_proj_dim": c.dim if c.embedding_dim is None else c.embedding_dim,
        "activation_function": to_hf_activation(c.activation),
        "dropout": c.dropout,
        "attention_dropout": c.dropout,
        "do_layer_norm_before": c.norm == "pre",
    }


def can_export(model: nn.Module) -> bool:
    return matches_gpt(model, "embedding_dim", "norm", position_offset=OFFSET) and model.config.eps == EPS


def is_base_model(model: GPT) -> bool:
    return model.config.head == "hidden_states"


IGNORED = "_remove_final_layer_norm activation_dropout attention_dropout init_std layerdrop"
ARCHITECTURE = HFArchitecture(
    name="OPT",
    model_type="opt",
    config_class=HFOPTConfig,
    ignored_fields=frozenset(IGNORED.split()),
    head_by_class=HEAD_BY_CLASS,
    base_model_prefix="model.",
    resolve_tying=detect_tying("model.decoder.embed_tokens.weight", "lm_head.weight"),
    build=build,
    tensor_map=tensor_map,
    ignored_tensors=unused_lm_head,
    can_export=can_export,
    is_base_model=is_base_model,
    to_config=to_config,
)
