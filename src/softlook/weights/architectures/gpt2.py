"""GPT-2 and OPT; shared code of GPT-NeoX and Bloom.

GPT-2 stores linear layers transposed, and query, key and value in one tensor. OPT has ReLU and a position offset of 2;
one of its sizes has post-norm and projected embeddings.
"""

from dataclasses import replace
from typing import Any, Literal, TypeGuard

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from torch import nn

from softlook.base.errors import WeightsError
from softlook.models.gpt import GPT, GPTConfig
from softlook.weights.architectures.bart import BLOCK_NAMES as BART_BLOCK_NAMES
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
from softlook.weights.tensor_map import Concat, Rename, TensorRule, qkv_names, rename_blocks, rename_layer

FIELDS = {
    "vocab_size": "vocab_size",
    "context": "n_positions",
    "dim": "n_embd",
    "depth": "n_layer",
    "heads": "n_head",
    "activation": "activation_function",
    "dropout": "resid_pdrop",
    "eps": "layer_norm_epsilon",
    "causal": "is_causal",
}
"""softlook's config fields -> Hugging Face's."""


class HFGPT2Config(HFDecoderConfig):
    """Hugging Face's GPT2Config: the fields that affect the output."""

    vocab_size: PositiveInt = 50257
    n_positions: PositiveInt = 1024
    n_embd: PositiveInt = 768
    n_layer: PositiveInt = 12
    n_head: PositiveInt = 12
    n_inner: PositiveInt | None = None
    activation_function: str = "gelu_new"
    resid_pdrop: NonNegativeFloat = 0.1
    layer_norm_epsilon: PositiveFloat = 1e-5
    scale_attn_weights: bool = True
    scale_attn_by_inverse_layer_idx: bool = False
    add_cross_attention: bool = False
    is_causal: bool = True


def build(hf_config: HFGPT2Config, head: str) -> GPT:
    if hf_config.scale_attn_by_inverse_layer_idx or not hf_config.scale_attn_weights or hf_config.add_cross_attention:
        raise WeightsError(
            "scale_attn_weights must be true, scale_attn_by_inverse_layer_idx and add_cross_attention false"
        )
    return build_gpt(hf_config, head, FIELDS, hidden=hf_config.n_inner)


def build_gpt(hf_config: Any, head: str, fields: dict[str, str], **changes: Any) -> GPT:
    """A GPT with these fields of a Hugging Face config, and with `changes`."""
    return GPT(GPTConfig(**from_hf_fields(hf_config, fields), **decoder_head_fields(hf_config, head), **changes))


OPTIONAL_PARTS = """
    causal embedding_dim embedding_norm norm num_class_labels parallel partial_rotary_factor persistent position_offset
    positions product_keys rope_scaling
"""
"""Fields of GPTConfig that not every GPT-like architecture supports."""


def matches_gpt(model: nn.Module, *free: str, **parts: Any) -> TypeGuard[GPT]:
    """Whether a model is a GPT whose OPTIONAL_PARTS have these values, or GPT-2's defaults; `free` ones may differ."""
    if not isinstance(model, GPT):
        return False
    expected = {
        part: parts.get(part, getattr(GPTConfig(), part)) for part in OPTIONAL_PARTS.split() if part not in free
    }
    return all(getattr(model.config, part) == value for part, value in expected.items())


def tensor_map(model: GPT) -> list[TensorRule]:
    depth = model.config.depth
    found: list[TensorRule] = [
        Rename("token_embedding.weight", "transformer.wte.weight"),
        Rename("position_embedding.weight", "transformer.wpe.weight"),
        *rename_layer("final_norm", "transformer.ln_f"),
        *decoder_head_rules(model.config),
        *rename_blocks(depth, "transformer.h", {"attn_norm": "ln_1", "ffn_norm": "ln_2"}),
    ]
    linear = {"attn.to_out": "attn.c_proj", "ffn.to_up": "mlp.c_fc", "ffn.to_out": "mlp.c_proj"}
    for i in range(depth):
        target, source = f"blocks.{i}", f"transformer.h.{i}"
        for name, hf_name in linear.items():
            found += rename_layer(f"{target}.{name}", f"{source}.{hf_name}", transposed=True)
        for kind in ("weight", "bias"):
            found.append(Concat(qkv_names(target, kind), f"{source}.attn.c_attn.{kind}", transposed=kind == "weight"))
    return found


def ignored_tensors(model: GPT) -> tuple[str, ...]:
    masks = (r"(transformer\.)?h\.\d+\.attn\.(bias|masked_bias)",)
    return (*masks, *unused_lm_head(model))


def to_config(model: GPT) -> dict[str, Any]:
    c = model.config
    dropouts = {"embd_pdrop": c.dropout, "attn_pdrop": c.dropout}
    return {**hf_decoder_fields(c), **to_hf_fields(c, FIELDS), "n_inner": c.hidden, **dropouts}


GPT2 = HFArchitecture(
    name="GPT-2",
    model_type="gpt2",
    config_class=HFGPT2Config,
    ignored_fields=frozenset({"embd_pdrop", "attn_pdrop", "initializer_range", "n_ctx", "reorder_and_upcast_attn"}),
    head_by_class={
        "GPT2LMHeadModel": "causal_lm",
        "GPT2Model": "causal_lm",
        "GPT2ForSequenceClassification": "classification",
    },
    base_model_prefix="transformer.",
    resolve_tying=detect_tying("transformer.wte.weight", "lm_head.weight"),
    build=build,
    tensor_map=tensor_map,
    ignored_tensors=ignored_tensors,
    can_export=lambda model: matches_gpt(model, "causal") and model.config.head != "hidden_states",
    to_config=to_config,
)


OPT_OFFSET, OPT_EPS = 2, 1e-5
"""Unused rows of the position embedding, and epsilon of the norms; not part of the config."""
OPT_FIELDS = HF_TEXT_SIZES | {"hidden": "ffn_dim", "activation": "activation_function", "dropout": "dropout"}


class HFOPTConfig(HFDecoderConfig):
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
    is_causal: Literal[True] = True


def build_opt(hf_config: HFOPTConfig, head: str) -> GPT:
    if hf_config.do_layer_norm_before and hf_config.without_final_norm:
        raise WeightsError("_remove_final_layer_norm is not supported with do_layer_norm_before")
    norm = "pre" if hf_config.do_layer_norm_before else "post"
    fixed = {"eps": OPT_EPS, "position_offset": OPT_OFFSET}
    return build_gpt(hf_config, head, OPT_FIELDS, norm=norm, embedding_dim=hf_config.word_embed_proj_dim, **fixed)


def opt_tensor_map(model: GPT) -> list[TensorRule]:
    c = model.config
    found: list[TensorRule] = [
        Rename("token_embedding.weight", "model.decoder.embed_tokens.weight"),
        Rename("position_embedding.weight", "model.decoder.embed_positions.weight"),
        *decoder_head_rules(c),
        *rename_blocks(c.depth, "model.decoder.layers", BART_BLOCK_NAMES),
    ]
    if c.norm == "pre":
        found += rename_layer("final_norm", "model.decoder.final_layer_norm")
    if c.embedding_dim not in (None, c.dim):
        found += rename_layer("project_in", "model.decoder.project_in", "weight")
        found += rename_layer("project_out", "model.decoder.project_out", "weight")
    return found


def to_opt_config(model: GPT) -> dict[str, Any]:
    c = model.config
    return {
        "pad_token_id": None,
        **hf_decoder_fields(c),
        **to_hf_fields(c, OPT_FIELDS),
        "word_embed_proj_dim": c.dim if c.embedding_dim is None else c.embedding_dim,
        "attention_dropout": c.dropout,
        "do_layer_norm_before": c.norm == "pre",
    }


OPT_IGNORED = "_remove_final_layer_norm activation_dropout attention_dropout init_std layerdrop"
OPT = replace(
    GPT2,
    name="OPT",
    model_type="opt",
    config_class=HFOPTConfig,
    ignored_fields=frozenset(OPT_IGNORED.split()),
    head_by_class=decoder_heads("OPT"),
    base_model_prefix="model.",
    resolve_tying=detect_tying("model.decoder.embed_tokens.weight", "lm_head.weight"),
    build=build_opt,
    tensor_map=opt_tensor_map,
    ignored_tensors=unused_lm_head,
    can_export=lambda model: (
        matches_gpt(model, "embedding_dim", "norm", position_offset=OPT_OFFSET) and model.config.eps == OPT_EPS
    ),
    to_config=to_opt_config,
)
