"""DeBERTa v2 and v3 with all their heads."""

from dataclasses import replace
from typing import Any

from pydantic import NonNegativeInt, PositiveInt
from torch import nn

from softlook.base.errors import WeightsError
from softlook.models.deberta import ConvolutionConfig, Deberta, DebertaConfig
from softlook.weights.architectures import bert, encoders
from softlook.weights.architectures.base import (
    from_hf_activation,
    from_hf_fields,
    label_fields,
    to_hf_activation,
    to_hf_fields,
)
from softlook.weights.tensor_map import Rename, TensorRule, Tensors, rename_blocks, rename_layer

PREFIX = "deberta."
HEAD_NAMES = replace(bert.HEAD_NAMES, embedding="deberta.embeddings.word_embeddings.weight", pooler="pooler.dense")
FIELDS = bert.FIELDS | {"absolute_positions": "position_biased_input", "share_projections": "share_att_key"}
BLOCK_NAMES = bert.BLOCK_NAMES | {
    f"attn.to_{part}": f"attention.self.{part}_proj" for part in ("query", "key", "value")
}
NEW_HEAD_NAMES = {
    "lm_predictions.lm_head.dense": "cls.predictions.transform.dense",
    "lm_predictions.lm_head.LayerNorm": "cls.predictions.transform.LayerNorm",
    "lm_predictions.lm_head.bias": "cls.predictions.bias",
}
"""Tensor names of the masked LM head with `legacy: false` -> with `legacy: true`."""


class HFDebertaConfig(encoders.HFEncoderConfig):
    """Hugging Face's DebertaV2Config: the fields that affect the output."""

    vocab_size: PositiveInt = 128100
    hidden_size: PositiveInt = 1536
    embedding_size: PositiveInt | None = None
    attention_head_size: PositiveInt | None = None
    num_hidden_layers: PositiveInt = 24
    num_attention_heads: PositiveInt = 24
    intermediate_size: PositiveInt = 6144
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    max_position_embeddings: PositiveInt = 512
    type_vocab_size: NonNegativeInt = 0
    layer_norm_eps: float = 1e-7
    relative_attention: bool = False
    max_relative_positions: int = -1
    position_buckets: int = -1
    position_biased_input: bool = True
    pos_att_type: str | list[str] | None = None
    share_att_key: bool = False
    norm_rel_ebd: str = "none"
    conv_kernel_size: int = 0
    conv_groups: PositiveInt = 1
    conv_act: str = "tanh"
    pooler_hidden_act: str = "gelu"
    pooler_hidden_size: PositiveInt | None = None
    legacy: bool = True

    @property
    def position_terms(self) -> list[str]:
        """Terms of the relative scores: c2p, p2c."""
        terms = self.pos_att_type or []
        terms = [term.strip() for term in terms.lower().split("|")] if isinstance(terms, str) else terms
        return [term for term in ("c2p", "p2c") if term in terms]

    @property
    def has_relative_norm(self) -> bool:
        """Whether relative position embeddings are normalized."""
        return "layer_norm" in [part.strip() for part in self.norm_rel_ebd.lower().split("|")]


def check_supported(hf_config: HFDebertaConfig) -> None:
    """Raise WeightsError for configs that softlook's Deberta does not support."""
    if hf_config.relative_attention is not bool(hf_config.position_terms) or (
        hf_config.has_relative_norm and not hf_config.relative_attention
    ):
        raise WeightsError(
            "relative_attention must be true if and only if pos_att_type has c2p or p2c, or norm_rel_ebd a norm, got "
            f"relative_attention={hf_config.relative_attention}, pos_att_type={hf_config.pos_att_type!r:.60}, "
            f"norm_rel_ebd={hf_config.norm_rel_ebd!r:.40}"
        )
    for field, expected in {
        "attention_head_size": hf_config.hidden_size // hf_config.num_attention_heads,
        "pooler_hidden_size": hf_config.hidden_size,
    }.items():
        if getattr(hf_config, field) not in (None, expected):
            raise WeightsError(f"{field} must be {expected} by the other sizes, got {getattr(hf_config, field)}")


def build(hf_config: HFDebertaConfig, head: str) -> Deberta:
    check_supported(hf_config)
    max_distance = hf_config.max_relative_positions
    max_distance = max_distance if max_distance > 0 else hf_config.max_position_embeddings
    embedding_dim = None if hf_config.embedding_size == hf_config.hidden_size else hf_config.embedding_size
    config = DebertaConfig(
        **from_hf_fields(hf_config, FIELDS),
        embedding_dim=embedding_dim,
        relative_attention=tuple(hf_config.position_terms),  # pyright: ignore[reportArgumentType]
        max_distance=max_distance,
        buckets=max(hf_config.position_buckets, 0),
        relative_norm=hf_config.has_relative_norm,
        convolution=convolution_of(hf_config),
        pooler=from_hf_activation(hf_config.pooler_hidden_act),
        tie_embeddings=hf_config.tie_word_embeddings or head != "masked_lm",
        **label_fields(hf_config, head),
    )
    pooling = encoders.pooling_fields(head)
    return Deberta(replace(config, **pooling, pooler=None if "pooling" in pooling else config.pooler))


def convolution_of(hf_config: HFDebertaConfig) -> ConvolutionConfig | None:
    if hf_config.conv_kernel_size <= 0:
        return None
    activation = from_hf_activation(hf_config.conv_act)
    return ConvolutionConfig(
        kernel_size=hf_config.conv_kernel_size, groups=hf_config.conv_groups, activation=activation
    )


def resolve_tying(config: HFDebertaConfig, tensors: Tensors) -> tuple[Any, Tensors]:
    """Rename the newer masked LM head, which is always tied, to its legacy names."""
    if config.legacy:
        return HEAD_NAMES.resolve_tying(config, tensors)
    renamed = {to_legacy_name(name): tensor for name, tensor in tensors.items() if not name.startswith("cls.")}
    return config.model_copy(update={"tie_word_embeddings": True}), renamed


def to_legacy_name(name: str) -> str:
    prefix = next((new for new in NEW_HEAD_NAMES if name == new or name.startswith(f"{new}.")), None)
    return name if prefix is None else NEW_HEAD_NAMES[prefix] + name.removeprefix(prefix)


def tensor_map(model: Deberta) -> list[TensorRule]:
    c = model.config
    found: list[TensorRule] = [
        Rename("token_embedding.weight", f"{PREFIX}embeddings.word_embeddings.weight"),
        *rename_layer("embedding_norm", f"{PREFIX}embeddings.LayerNorm"),
    ]
    if c.absolute_positions:
        found += rename_layer("position_embedding", f"{PREFIX}embeddings.position_embeddings", "weight")
    if c.token_types:
        found += rename_layer("type_embedding", f"{PREFIX}embeddings.token_type_embeddings", "weight")
    if isinstance(model.project_in, nn.Linear):
        found += rename_layer("project_in", f"{PREFIX}embeddings.embed_proj", "weight")
    if c.relative_attention:
        found += rename_layer("relative_embedding.embedding", f"{PREFIX}encoder.rel_embeddings", "weight")
        found += rename_layer("relative_embedding.norm", f"{PREFIX}encoder.LayerNorm") if c.relative_norm else []
    if c.convolution is not None:
        found += rename_layer("convolution.conv", f"{PREFIX}encoder.conv.conv")
        found += rename_layer("convolution.norm", f"{PREFIX}encoder.conv.LayerNorm")
    names = dict(BLOCK_NAMES)
    if not c.share_projections and "c2p" in c.relative_attention:
        names["attn.to_position_key"] = "attention.self.pos_key_proj"
    if not c.share_projections and "p2c" in c.relative_attention:
        names["attn.to_position_query"] = "attention.self.pos_query_proj"
    return [*found, *rename_blocks(c.depth, f"{PREFIX}encoder.layer", names), *HEAD_NAMES.rules(model)]


def ignored_tensors(model: Deberta) -> tuple[str, ...]:
    """Pretraining heads and unused absolute positions of published files."""
    ignored = (
        r"(deberta\.)?embeddings\.position_ids",
        r"(deberta\.)?embeddings\.\w+\._weight",
        r"mask_predictions\..*",
    )
    ignored += () if model.config.absolute_positions else (r"(deberta\.)?embeddings\.position_embeddings\.weight",)
    return ignored if model.config.head == "masked_lm" else (*ignored, r"(lm_predictions|cls)\..*")


def to_config(model: Deberta) -> dict[str, Any]:
    c = model.config
    convolution = {}
    if c.convolution is not None:
        convolution = {
            "conv_kernel_size": c.convolution.kernel_size,
            "conv_groups": c.convolution.groups,
            "conv_act": to_hf_activation(c.convolution.activation),
        }
    return {
        **to_hf_fields(c, FIELDS),
        "embedding_size": c.dim if c.embedding_dim is None else c.embedding_dim,
        "relative_attention": bool(c.relative_attention),
        "pos_att_type": list(c.relative_attention),
        "max_relative_positions": c.max_distance,
        "position_buckets": c.buckets or -1,
        "norm_rel_ebd": "layer_norm" if c.relative_norm and c.relative_attention else "none",
        **convolution,
        "attention_probs_dropout_prob": c.dropout,
        "pooler_hidden_act": to_hf_activation(c.pooler or "gelu"),
        "pooler_hidden_size": c.dim,
        "legacy": True,
        **encoders.hf_tie_field(c),
    }


def can_export(model: nn.Module) -> bool:
    if not isinstance(model, Deberta):
        return False
    c = model.config
    if c.head in ("pooled", "embedding"):
        return c.pooler is None
    return c.head not in ("classification", "multiple_choice") or (c.pooling == "cls" and c.pooler is not None)


IGNORED = "attention_probs_dropout_prob cls_dropout pooler_dropout"
DEBERTA = replace(
    bert.BERT,
    name="DeBERTa-v2",
    model_type="deberta-v2",
    config_class=HFDebertaConfig,
    ignored_fields=frozenset(IGNORED.split()),
    head_by_class=encoders.encoder_heads("DebertaV2"),
    base_model_prefix=PREFIX,
    detect_head=encoders.detect_sentence_head,
    resolve_tying=resolve_tying,
    build=build,
    tensor_map=tensor_map,
    ignored_tensors=ignored_tensors,
    can_export=can_export,
    to_config=to_config,
)
