"""RoBERTa, XLM-RoBERTa, CamemBERT and MPNet."""

from dataclasses import replace
from typing import Any, Literal

from pydantic import NonNegativeInt, PositiveInt
from torch import nn

from softlook.base.errors import WeightsError
from softlook.heads.pooling import Pooler
from softlook.models.bert import Bert, BertConfig
from softlook.weights.architectures import bert, encoders
from softlook.weights.tensor_map import Rename, TensorRule


def head_names(prefix: str) -> encoders.HeadNames:
    """Tensor names of the heads of RoBERTa and MPNet."""
    return encoders.HeadNames(
        embedding=f"{prefix}embeddings.word_embeddings.weight",
        weight="lm_head.decoder.weight",
        bias="lm_head.bias",
        bias_copy="lm_head.decoder.bias",
        dense="lm_head.dense",
        norm="lm_head.layer_norm",
        pooler=f"{prefix}pooler.dense",
        has_own_pooler=True,
    )


HEAD_NAMES, MPNET_HEAD_NAMES = head_names("roberta."), head_names("mpnet.")


class HFRobertaConfig(bert.HFBertConfig):
    """Hugging Face's RobertaConfig: the fields that affect the output."""

    vocab_size: PositiveInt = 50265
    pad_token_id: NonNegativeInt = 1


class HFXLMRobertaConfig(HFRobertaConfig):
    """Hugging Face's XLMRobertaConfig and CamembertConfig: RobertaConfig with another default."""

    vocab_size: PositiveInt = 30522


def offset_config(hf_config: bert.HFBertConfig, head: str, name: str, offset: int) -> BertConfig:
    """Convert a config of RoBERTa or MPNet, which do not use the first `offset` positions, up to the padding id."""
    encoders.check_head_activation(hf_config.hidden_act, head, name)
    if hf_config.max_position_embeddings <= offset:
        raise WeightsError(
            f"{hf_config.max_position_embeddings} positions leave none after the padding id {offset - 1}"
        )
    config = bert.encoder_config(hf_config, head)
    return replace(config, position_offset=offset, context=config.context - offset)


def ignored_tensors(model: Bert) -> tuple[str, ...]:
    ignored = (r"(\w+\.)?embeddings\.position_ids",)
    used = model.config.head in ("pooled", "multiple_choice") and encoders.find_module(model, Pooler)
    return ignored if used else (*ignored, r"(\w+\.)?pooler\.dense\.(weight|bias)")


def to_config(model: Bert) -> dict[str, Any]:
    c = model.config
    positions = {"max_position_embeddings": c.context + c.position_offset, "pad_token_id": c.position_offset - 1}
    return bert.to_config(model) | positions


def can_export(model: nn.Module) -> bool:
    if not isinstance(model, Bert) or not model.config.position_offset or not model.config.token_types:
        return False
    return encoders.is_plain_bert(model.config) and has_roberta_head(model.config)


def has_roberta_head(c: BertConfig) -> bool:
    """Whether RoBERTa and MPNet have this head."""
    if c.head in ("next_sentence", "pretraining") or (c.head == "masked_lm" and c.activation != "gelu"):
        return False
    return encoders.has_hf_pooler(c, "tanh")


ROBERTA = replace(
    bert.BERT,
    name="RoBERTa",
    model_type="roberta",
    config_class=HFRobertaConfig,
    ignored_fields=frozenset({"attention_probs_dropout_prob", "classifier_dropout"}),
    head_by_class=encoders.encoder_heads("Roberta", "pooled"),
    base_model_prefix="roberta.",
    resolve_tying=HEAD_NAMES.resolve_tying,
    build=lambda hf_config, head: Bert(offset_config(hf_config, head, "RoBERTa", offset=hf_config.pad_token_id + 1)),
    tensor_map=lambda model: [*bert.encoder_rules(model, "roberta."), *HEAD_NAMES.rules(model)],
    ignored_tensors=ignored_tensors,
    can_export=can_export,
    to_config=to_config,
)
XLM_ROBERTA = replace(
    ROBERTA,
    name="XLM-RoBERTa",
    model_type="xlm-roberta",
    config_class=HFXLMRobertaConfig,
    head_by_class=encoders.encoder_heads("XLMRoberta", "pooled"),
    can_export=lambda model: False,  # identical to RoBERTa, and exported as such
)
CAMEMBERT = replace(
    XLM_ROBERTA,
    name="CamemBERT",
    model_type="camembert",
    head_by_class=encoders.encoder_heads("Camembert", "pooled"),
)


OFFSET = 2
"""Unused rows of the position embedding; fixed in Hugging Face's code."""
BUCKETS = 32
"""Number of relative position buckets; fixed in Hugging Face's code."""
MPNET_BLOCK_NAMES = bert.BLOCK_NAMES | {
    "attn.to_query": "attention.attn.q",
    "attn.to_key": "attention.attn.k",
    "attn.to_value": "attention.attn.v",
    "attn.to_out": "attention.attn.o",
    "attn_norm": "attention.LayerNorm",
}


class HFMPNetConfig(bert.HFBertConfig):
    """Hugging Face's MPNetConfig: the fields that affect the output."""

    vocab_size: PositiveInt = 30527
    relative_attention_num_buckets: PositiveInt = BUCKETS
    pad_token_id: Literal[1] = 1  # fixed in Hugging Face's code, which derives positions from it


def build_mpnet(hf_config: HFMPNetConfig, head: str) -> Bert:
    if hf_config.relative_attention_num_buckets != BUCKETS:
        raise WeightsError(
            f"relative_attention_num_buckets must be {BUCKETS}, as in Hugging Face's code, "
            f"got {hf_config.relative_attention_num_buckets}"
        )
    return Bert(replace(offset_config(hf_config, head, "MPNet", OFFSET), token_types=0, buckets=BUCKETS))


def mpnet_tensor_map(model: Bert) -> list[TensorRule]:
    relative_bias = Rename("relative_bias.weight", "mpnet.encoder.relative_attention_bias.weight")
    encoder = bert.encoder_rules(model, "mpnet.", MPNET_BLOCK_NAMES)
    return [relative_bias, *encoder, *MPNET_HEAD_NAMES.rules(model)]


def to_mpnet_config(model: Bert) -> dict[str, Any]:
    fields = to_config(model) | {"relative_attention_num_buckets": model.config.buckets}
    return {name: value for name, value in fields.items() if name not in ("type_vocab_size", "pad_token_id")}


def can_export_mpnet(model: nn.Module) -> bool:
    if not isinstance(model, Bert):
        return False
    c = model.config
    is_mpnet = (c.buckets, c.position_offset, c.token_types) == (BUCKETS, OFFSET, 0)
    return is_mpnet and encoders.is_plain_bert(replace(c, buckets=0)) and has_roberta_head(c)


MPNET = replace(
    ROBERTA,
    name="MPNet",
    model_type="mpnet",
    config_class=HFMPNetConfig,
    head_by_class=encoders.encoder_heads("MPNet", "pooled"),
    base_model_prefix="mpnet.",
    resolve_tying=MPNET_HEAD_NAMES.resolve_tying,
    build=build_mpnet,
    tensor_map=mpnet_tensor_map,
    can_export=can_export_mpnet,
    to_config=to_mpnet_config,
)
