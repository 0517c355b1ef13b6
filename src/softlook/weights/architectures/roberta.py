"""RoBERTa, XLM-RoBERTa, CamemBERT and MPNet."""

from dataclasses import replace
from typing import Any, Literal

from pydantic import NonNegativeInt, PositiveInt
from torch import nn

from softlook.base.errors import WeightsError
from softlook.heads.classification import ClassificationHead, SpanHead, TokenClassificationHead
from softlook.heads.lm import MaskedLMHead
from softlook.heads.pooling import Pooler
from softlook.models.bert import Bert, BertConfig
from softlook.weights.architectures import bert, encoders
from softlook.weights.architectures.base import HFArchitecture
from softlook.weights.tensor_map import Rename, TensorRule, rename_layer

CLASS_SUFFIXES = {
    "Model": "pooled",
    "ForMaskedLM": "masked_lm",
    "ForSequenceClassification": "classification",
    "ForMultipleChoice": "multiple_choice",
    "ForTokenClassification": "token_classification",
    "ForQuestionAnswering": "question_answering",
}
"""Suffix of a Hugging Face class -> head."""
HEAD_BY_CLASS = {f"Roberta{name}": head for name, head in CLASS_SUFFIXES.items()}


def lm_head_names(prefix: str) -> encoders.LMHeadNames:
    """Tensor names of the masked LM head of RoBERTa and MPNet."""
    return encoders.LMHeadNames(
        embedding=f"{prefix}embeddings.word_embeddings.weight",
        weight="lm_head.decoder.weight",
        bias="lm_head.bias",
        bias_copy="lm_head.decoder.bias",
    )


PREFIX = "roberta."
LM_HEAD_NAMES = lm_head_names(PREFIX)


class HFRobertaConfig(bert.HFBertConfig):
    """Hugging Face's RobertaConfig: the fields that affect the output."""

    vocab_size: PositiveInt = 50265
    pad_token_id: NonNegativeInt = 1


class HFXLMRobertaConfig(HFRobertaConfig):
    """Hugging Face's XLMRobertaConfig and CamembertConfig: RobertaConfig with another default."""

    vocab_size: PositiveInt = 30522


def build(hf_config: HFRobertaConfig, head: str) -> Bert:
    encoders.check_head_activation(hf_config.hidden_act, head, "RoBERTa")
    offset = hf_config.pad_token_id + 1  # rows up to the padding id are unused
    if hf_config.max_position_embeddings <= offset:
        raise WeightsError(
            f"{hf_config.max_position_embeddings} positions leave none after the padding id {offset - 1}"
        )
    config = bert.encoder_config(hf_config, head)
    return Bert(replace(config, position_offset=offset, context=config.context - offset))


def tensor_map(model: Bert) -> list[TensorRule]:
    return [*bert.encoder_rules(model, PREFIX), *head_rules(model, PREFIX)]


def head_rules(model: Bert, prefix: str) -> list[TensorRule]:
    """Tensor rules of the heads of RoBERTa and MPNet."""
    found: list[TensorRule] = []
    in_two_steps = model.config.head == "classification"  # the classification head contains its own pooler
    if pool := encoders.find_module(model, Pooler):
        found += rename_layer(f"{pool}.dense", "classifier.dense" if in_two_steps else f"{prefix}pooler.dense")
    if words := encoders.find_module(model, MaskedLMHead):
        found += rename_layer(f"{words}.dense", "lm_head.dense")
        found += rename_layer(f"{words}.norm", "lm_head.layer_norm")
        found += lm_head_names(prefix).rules(words, tied=model.config.tie_embeddings)
    if classes := encoders.find_module(model, ClassificationHead, TokenClassificationHead):
        found += rename_layer(f"{classes}.to_classes", "classifier.out_proj" if in_two_steps else "classifier")
    if ends := encoders.find_module(model, SpanHead):
        found += rename_layer(f"{ends}.to_span", "qa_outputs")
    return found


def ignored_tensors(model: Bert) -> tuple[str, ...]:
    ignored = (r"(\w+\.)?embeddings\.position_ids",)
    used = model.config.head in ("pooled", "multiple_choice") and encoders.find_module(model, Pooler)
    return ignored if used else (*ignored, r"(\w+\.)?pooler\.dense\.(weight|bias)")


def to_config(model: Bert) -> dict[str, Any]:
    c = model.config
    return {
        "architectures": [encoders.hf_class(model, HEAD_BY_CLASS)],
        **bert.encoder_fields(model),
        "max_position_embeddings": c.context + c.position_offset,
        "pad_token_id": c.position_offset - 1,
    }


def can_export(model: nn.Module) -> bool:
    if not isinstance(model, Bert) or not model.config.position_offset or not model.config.token_types:
        return False
    return encoders.is_plain_bert(model.config) and has_roberta_head(model.config)


def has_roberta_head(c: BertConfig) -> bool:
    """Whether RoBERTa and MPNet have this head."""
    if c.head in ("next_sentence", "pretraining") or (c.head == "masked_lm" and c.activation != "gelu"):
        return False
    return encoders.has_hf_pooler(c, "tanh")


ROBERTA = HFArchitecture(
    name="RoBERTa",
    model_type="roberta",
    config_class=HFRobertaConfig,
    ignored_fields=frozenset({"attention_probs_dropout_prob", "classifier_dropout"}),
    head_by_class=HEAD_BY_CLASS,
    base_model_prefix=PREFIX,
    detect_head=bert.detect_head,
    resolve_tying=LM_HEAD_NAMES.resolve_tying,
    build=build,
    tensor_map=tensor_map,
    ignored_tensors=ignored_tensors,
    can_export=can_export,
    is_base_model=encoders.is_base_model,
    to_config=to_config,
    extra_files=encoders.sentence_files_of,
)
XLM_ROBERTA = replace(
    ROBERTA,
    name="XLM-RoBERTa",
    model_type="xlm-roberta",
    config_class=HFXLMRobertaConfig,
    head_by_class={f"XLMRoberta{name}": head for name, head in CLASS_SUFFIXES.items()},
    can_export=lambda model: False,  # identical to RoBERTa, and exported as such
)
CAMEMBERT = replace(
    XLM_ROBERTA,
    name="CamemBERT",
    model_type="camembert",
    head_by_class={f"Camembert{name}": head for name, head in CLASS_SUFFIXES.items()},
)


MPNET_HEADS = {f"MPNet{name}": head for name, head in CLASS_SUFFIXES.items()}
MPNET_PREFIX = "mpnet."
MPNET_LM_HEAD = lm_head_names(MPNET_PREFIX)
OFFSET = 2
"""Unused rows of the position embedding; fixed in Hugging Face's code."""
BUCKETS = 32
"""Number of relative position buckets; fixed in Hugging Face's code."""


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
    encoders.check_head_activation(hf_config.hidden_act, head, "MPNet")
    config = bert.encoder_config(hf_config, head)
    if config.context <= OFFSET:
        raise WeightsError(f"{config.context} positions leave none after the padding id {OFFSET - 1}")
    return Bert(
        replace(config, token_types=0, buckets=BUCKETS, position_offset=OFFSET, context=config.context - OFFSET)
    )


def mpnet_tensor_map(model: Bert) -> list[TensorRule]:
    found: list[TensorRule] = [
        Rename("token_embedding.weight", f"{MPNET_PREFIX}embeddings.word_embeddings.weight"),
        Rename("position_embedding.weight", f"{MPNET_PREFIX}embeddings.position_embeddings.weight"),
        Rename("relative_bias.weight", f"{MPNET_PREFIX}encoder.relative_attention_bias.weight"),
        *rename_layer("embedding_norm", f"{MPNET_PREFIX}embeddings.LayerNorm"),
    ]
    names = {
        "attn.to_query": "attention.attn.q",
        "attn.to_key": "attention.attn.k",
        "attn.to_value": "attention.attn.v",
        "attn.to_out": "attention.attn.o",
        "attn_norm": "attention.LayerNorm",
        "ffn.to_up": "intermediate.dense",
        "ffn.to_out": "output.dense",
        "ffn_norm": "output.LayerNorm",
    }
    for i in range(model.config.depth):
        for target, source in names.items():
            found += rename_layer(f"blocks.{i}.{target}", f"{MPNET_PREFIX}encoder.layer.{i}.{source}")
    return [*found, *head_rules(model, MPNET_PREFIX)]


def to_mpnet_config(model: Bert) -> dict[str, Any]:
    c = model.config
    described = bert.encoder_fields(model)
    described.pop("type_vocab_size")
    return {
        "architectures": [encoders.hf_class(model, MPNET_HEADS)],
        **described,
        "max_position_embeddings": c.context + c.position_offset,
        "relative_attention_num_buckets": c.buckets,
    }


def can_export_mpnet(model: nn.Module) -> bool:
    if not isinstance(model, Bert):
        return False
    c = model.config
    is_mpnet = (c.buckets, c.position_offset, c.token_types) == (BUCKETS, OFFSET, 0)
    return is_mpnet and encoders.is_plain_bert(replace(c, buckets=0)) and has_roberta_head(c)


MPNET = HFArchitecture(
    name="MPNet",
    model_type="mpnet",
    config_class=HFMPNetConfig,
    ignored_fields=frozenset({"attention_probs_dropout_prob", "classifier_dropout"}),
    head_by_class=MPNET_HEADS,
    base_model_prefix=MPNET_PREFIX,
    detect_head=bert.detect_head,
    resolve_tying=MPNET_LM_HEAD.resolve_tying,
    build=build_mpnet,
    tensor_map=mpnet_tensor_map,
    ignored_tensors=ignored_tensors,
    can_export=can_export_mpnet,
    is_base_model=encoders.is_base_model,
    to_config=to_mpnet_config,
    extra_files=encoders.sentence_files_of,
)
