"""ModernBERT with all its heads."""

from dataclasses import replace
from typing import Any, Literal

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from softlook.base.errors import WeightsError
from softlook.models.modern_bert import ModernBert, ModernBertConfig, PredictionHead
from softlook.weights.architectures import encoders
from softlook.weights.architectures.base import (
    HF_TEXT_SIZES,
    HFArchitecture,
    from_hf_fields,
    label_fields,
    to_hf_fields,
)
from softlook.weights.architectures.rope import HFRopeParameters
from softlook.weights.tensor_map import Concat, Rename, TensorRule, qkv_names, rename_layer

PREFIX = "model."
HEAD_NAMES = encoders.HeadNames(
    embedding="model.embeddings.tok_embeddings.weight", weight="decoder.weight", bias="decoder.bias"
)
FIELDS = HF_TEXT_SIZES | {
    "activation": "hidden_activation",
    "eps": "norm_eps",
    "norm_bias": "norm_bias",
    "attention_bias": "attention_bias",
    "ffn_bias": "mlp_bias",
    "dropout": "attention_dropout",
    "pooling": "classifier_pooling",
    "head_activation": "classifier_activation",
    "head_bias": "classifier_bias",
    "lm_head_bias": "decoder_bias",
}
"""softlook's config fields -> Hugging Face's."""
LayerType = Literal["full_attention", "sliding_attention"]


class HFModernBertConfig(encoders.HFEncoderConfig):
    """Hugging Face's ModernBertConfig: the fields that affect the output."""

    vocab_size: PositiveInt = 50368
    hidden_size: PositiveInt = 768
    intermediate_size: PositiveInt = 1152
    num_hidden_layers: PositiveInt = 22
    num_attention_heads: PositiveInt = 12
    head_dim: PositiveInt | None = None
    hidden_activation: str = "gelu"
    max_position_embeddings: PositiveInt = 8192
    norm_eps: PositiveFloat = 1e-5
    norm_bias: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    attention_dropout: NonNegativeFloat = 0.0
    layer_types: list[LayerType] | None = None
    global_attn_every_n_layers: PositiveInt = 3
    local_attention: PositiveInt = 128
    rope_parameters: dict[LayerType, HFRopeParameters | None] | None = None
    rope_scaling: HFRopeParameters | None = None
    global_rope_theta: PositiveFloat = 160_000.0
    local_rope_theta: PositiveFloat = 10_000.0
    decoder_bias: bool = True
    classifier_pooling: Literal["cls", "mean"] = "cls"
    classifier_bias: bool = False
    classifier_activation: str = "gelu"


def build(hf_config: HFModernBertConfig, head: str) -> ModernBert:
    layer_types = hf_config.layer_types or [
        "sliding_attention" if number % hf_config.global_attn_every_n_layers else "full_attention"
        for number in range(hf_config.num_hidden_layers)
    ]
    if len(layer_types) != hf_config.num_hidden_layers:
        raise WeightsError(
            f"layer_types has {len(layer_types)} entries, but num_hidden_layers is {hf_config.num_hidden_layers}"
        )
    if hf_config.head_dim not in (None, hf_config.hidden_size // hf_config.num_attention_heads):
        raise WeightsError(
            f"head_dim must be hidden_size / num_attention_heads, got {hf_config.head_dim} for "
            f"{hf_config.hidden_size} / {hf_config.num_attention_heads}"
        )
    config = ModernBertConfig(
        **from_hf_fields(hf_config, FIELDS),
        sliding_window=hf_config.local_attention // 2,
        windowed_layers=tuple(
            number for number, layer_type in enumerate(layer_types) if layer_type == "sliding_attention"
        ),
        rope_theta=rope_theta_of(hf_config, "full_attention", hf_config.global_rope_theta),
        local_rope_theta=rope_theta_of(hf_config, "sliding_attention", hf_config.local_rope_theta),
        tie_embeddings=hf_config.tie_word_embeddings or head != "masked_lm",
        **label_fields(hf_config, head),
    )
    return ModernBert(replace(config, **encoders.pooling_fields(head)))


def rope_theta_of(hf_config: HFModernBertConfig, layer_type: LayerType, default: float) -> float:
    """rope_theta of layers of this type. RoPE scaling is not supported."""
    rope = (hf_config.rope_parameters or {}).get(layer_type) or HFRopeParameters()
    for parameters in (rope, hf_config.rope_scaling or HFRopeParameters()):
        if parameters.kind != "default" or parameters.partial_rotary_factor not in (None, 1):
            raise WeightsError(f"rope_type of {layer_type} layers must be 'default', got {parameters.kind!r:.40}")
    scaled = None if hf_config.rope_scaling is None else hf_config.rope_scaling.rope_theta
    return scaled or rope.rope_theta or default


def suffixes(bias: bool) -> tuple[str, ...]:
    return ("weight", "bias") if bias else ("weight",)


def tensor_map(model: ModernBert) -> list[TensorRule]:
    c = model.config
    norm = suffixes(c.norm_bias)
    found: list[TensorRule] = [
        Rename("token_embedding.weight", f"{PREFIX}embeddings.tok_embeddings.weight"),
        *rename_layer("embedding_norm", f"{PREFIX}embeddings.norm", *norm),
        *rename_layer("final_norm", f"{PREFIX}final_norm", *norm),
    ]
    for i in range(c.depth):
        target, source = f"blocks.{i}", f"{PREFIX}layers.{i}"
        if i:
            found += rename_layer(f"{target}.attn_norm", f"{source}.attn_norm", *norm)
        found += rename_layer(f"{target}.ffn_norm", f"{source}.mlp_norm", *norm)
        for kind in suffixes(c.attention_bias):
            found.append(Concat(qkv_names(target, kind), f"{source}.attn.Wqkv.{kind}"))
            found += rename_layer(f"{target}.attn.to_out", f"{source}.attn.Wo", kind)
        for kind in suffixes(c.ffn_bias):
            gate_and_up = (f"{target}.ffn.to_gate.{kind}", f"{target}.ffn.to_up.{kind}")
            found.append(Concat(gate_and_up, f"{source}.mlp.Wi.{kind}"))
            found += rename_layer(f"{target}.ffn.to_out", f"{source}.mlp.Wo", kind)
    return [*found, *head_rules(model)]


def head_rules(model: ModernBert) -> list[TensorRule]:
    c = model.config
    if not isinstance(model.head, PredictionHead):
        return []
    found = rename_layer("head.dense", "head.dense", *suffixes(c.head_bias))
    found += rename_layer("head.norm", "head.norm", *suffixes(c.norm_bias))
    if c.head != "masked_lm":
        return [*found, *rename_layer("head.to_classes", "classifier")]
    kinds = (() if c.tie_embeddings else ("weight",)) + (("bias",) if c.lm_head_bias else ())
    return [*found, *(rename_layer("head.to_classes", "decoder", *kinds) if kinds else ())]


def to_config(model: ModernBert) -> dict[str, Any]:
    c = model.config
    thetas = {"full_attention": c.rope_theta, "sliding_attention": c.local_rope_theta}
    return {
        **to_hf_fields(c, FIELDS),
        "local_attention": 2 * c.sliding_window,
        "layer_types": [
            "sliding_attention" if i in model.windowed_layers else "full_attention" for i in range(c.depth)
        ],
        "rope_parameters": {kind: {"rope_type": "default", "rope_theta": theta} for kind, theta in thetas.items()},
        **dict.fromkeys(("embedding_dropout", "mlp_dropout", "classifier_dropout"), c.dropout),
        "tie_word_embeddings": c.tie_embeddings,
        # Hugging Face's default ids may exceed this vocabulary.
        **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")),
    }


IGNORED = """
    classifier_dropout deterministic_flash_attn embedding_dropout initializer_cutoff_factor layer_norm_eps mlp_dropout
    position_embedding_type reference_compile repad_logits_with_grad sparse_pred_ignore_index sparse_prediction
"""
MODERN_BERT = HFArchitecture(
    name="ModernBERT",
    model_type="modernbert",
    config_class=HFModernBertConfig,
    ignored_fields=frozenset(IGNORED.split()),
    head_by_class=encoders.encoder_heads("ModernBert"),
    base_model_prefix=PREFIX,
    detect_head=encoders.detect_sentence_head,
    resolve_tying=HEAD_NAMES.resolve_tying,
    build=build,
    tensor_map=tensor_map,
    can_export=lambda model: isinstance(model, ModernBert),
    to_config=to_config,
    extra_files=encoders.sentence_files_of,
)
