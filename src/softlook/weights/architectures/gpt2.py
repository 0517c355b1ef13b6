"""GPT-2; shared code of GPT-NeoX, Bloom and OPT.

GPT-2 stores linear layers transposed, and query, key and value in one tensor.
"""

from collections.abc import Mapping
from typing import Any, TypeGuard

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt
from torch import nn

from softlook.base.errors import WeightsError
from softlook.models.gpt import GPT, GPTConfig
from softlook.weights.architectures.base import HFArchitecture, detect_tying, from_hf_activation, to_hf_activation
from softlook.weights.architectures.encoders import HFLabelConfig, hf_label_fields, label_fields
from softlook.weights.tensor_map import Concat, Rename, TensorRule, rename_layer

HEAD_BY_CLASS = {
    "GPT2LMHeadModel": "causal_lm",
    "GPT2Model": "causal_lm",
    "GPT2ForSequenceClassification": "classification",
}


class HFGPTLikeConfig(HFLabelConfig):
    """Fields shared by GPT-2, GPT-NeoX, OPT and Bloom."""

    pad_token_id: int | None = None


class HFGPT2Config(HFGPTLikeConfig):
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
    tie_word_embeddings: bool = True
    is_causal: bool = True


def build(hf_config: HFGPT2Config, head: str) -> GPT:
    if hf_config.scale_attn_by_inverse_layer_idx or not hf_config.scale_attn_weights or hf_config.add_cross_attention:
        raise WeightsError(
            "scale_attn_weights must be true, scale_attn_by_inverse_layer_idx and add_cross_attention false"
        )
    return GPT(
        GPTConfig(
            vocab_size=hf_config.vocab_size,
            context=hf_config.n_positions,
            dim=hf_config.n_embd,
            depth=hf_config.n_layer,
            heads=hf_config.n_head,
            hidden=hf_config.n_inner,
            activation=from_hf_activation(hf_config.activation_function),
            dropout=hf_config.resid_pdrop,
            eps=hf_config.layer_norm_epsilon,
            tie_embeddings=hf_config.tie_word_embeddings,
            causal=hf_config.is_causal,
            **head_fields(hf_config, head),
        )
    )


def head_fields(hf_config: HFGPTLikeConfig, head: str) -> dict[str, Any]:
    """Head fields of GPTConfig."""
    if head != "classification":
        return {"head": head}
    return {"head": head, "pad_id": hf_config.pad_token_id, **label_fields(hf_config, head)}


def head_rules(model: GPT) -> list[TensorRule]:
    """Tensor rules of the head."""
    if model.config.head == "causal_lm" and not model.config.tie_embeddings:
        return rename_layer("lm_head", "lm_head", "weight")
    return rename_layer("lm_head.to_classes", "score", "weight") if model.config.head == "classification" else []


def hf_head_fields(model: GPT, head_by_class: Mapping[str, str]) -> dict[str, Any]:
    """Head fields of config.json."""
    c = model.config
    padding = {"pad_token_id": c.pad_id} if c.head == "classification" else {}
    hf_class = next(name for name, head in head_by_class.items() if head == c.head)
    return {"architectures": [hf_class], "tie_word_embeddings": c.tie_embeddings, **padding, **hf_label_fields(c)}


OPTIONAL_PARTS = """
    causal embedding_dim embedding_norm norm num_class_labels parallel partial_rotary_factor position_offset positions
    rope_scaling
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
    found: list[TensorRule] = [
        Rename("token_embedding.weight", "transformer.wte.weight"),
        Rename("position_embedding.weight", "transformer.wpe.weight"),
        *rename_layer("final_norm", "transformer.ln_f"),
    ]
    found += head_rules(model)
    for i in range(model.config.depth):
        target, source = f"blocks.{i}", f"transformer.h.{i}"
        found += [
            *rename_layer(f"{target}.attn_norm", f"{source}.ln_1"),
            *rename_layer(f"{target}.ffn_norm", f"{source}.ln_2"),
            *rename_layer(f"{target}.attn.to_out", f"{source}.attn.c_proj", transposed=True),
            *rename_layer(f"{target}.ffn.to_up", f"{source}.mlp.c_fc", transposed=True),
            *rename_layer(f"{target}.ffn.to_out", f"{source}.mlp.c_proj", transposed=True),
        ]
        for kind in ("weight", "bias"):
            parts = tuple(f"{target}.attn.{part}.{kind}" for part in ("to_query", "to_key", "to_value"))
            found.append(Concat(parts, f"{source}.attn.c_attn.{kind}", transposed=kind == "weight"))
    return found


def ignored_tensors(model: GPT) -> tuple[str, ...]:
    masks = (r"(transformer\.)?h\.\d+\.attn\.(bias|masked_bias)",)
    return (*masks, *unused_lm_head(model))


def unused_lm_head(model: GPT) -> tuple[str, ...]:
    """Pattern of an LM head that is tied or not used."""
    return (r"lm_head\.weight",) if model.config.tie_embeddings or model.config.head != "causal_lm" else ()


def to_config(model: GPT) -> dict[str, Any]:
    c = model.config
    return {
        **hf_head_fields(model, HEAD_BY_CLASS),
        "vocab_size": c.vocab_size,
        "n_positions": c.context,
        "n_embd": c.dim,
        "n_layer": c.depth,
        "n_head": c.heads,
        "n_inner": c.hidden,
        "activation_function": to_hf_activation(c.activation),
        "resid_pdrop": c.dropout,
        "embd_pdrop": c.dropout,
        "attn_pdrop": c.dropout,
        "layer_norm_epsilon": c.eps,
        "is_causal": c.causal,
    }


def can_export(model: nn.Module) -> bool:
    return matches_gpt(model, "causal") and model.config.head != "hidden_states"


ARCHITECTURE = HFArchitecture(
    name="GPT-2",
    model_type="gpt2",
    config_class=HFGPT2Config,
    ignored_fields=frozenset({"embd_pdrop", "attn_pdrop", "initializer_range", "n_ctx", "reorder_and_upcast_attn"}),
    head_by_class=HEAD_BY_CLASS,
    base_model_prefix="transformer.",
    resolve_tying=detect_tying("transformer.wte.weight", "lm_head.weight"),
    build=build,
    tensor_map=tensor_map,
    ignored_tensors=ignored_tensors,
    can_export=can_export,
    to_config=to_config,
)
