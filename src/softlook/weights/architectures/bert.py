"""BERT, ELECTRA (discriminator and generator) and DistilBERT, with all their heads."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeGuard

from pydantic import NonNegativeFloat, PositiveInt
from torch import nn

from softlook.base.errors import WeightsError
from softlook.heads.classification import ReplacedTokenHead
from softlook.heads.pooling import Pooler
from softlook.models.bert import Bert, BertConfig
from softlook.weights.architectures import encoders
from softlook.weights.architectures.base import HF_TEXT_SIZES, HFArchitecture, from_hf_fields, to_hf_fields
from softlook.weights.sentence_transformers import sentence_head
from softlook.weights.tensor_map import Rename, TensorRule, rename_blocks, rename_layer

HEAD_NAMES = encoders.HeadNames(
    embedding="bert.embeddings.word_embeddings.weight",
    weight="cls.predictions.decoder.weight",
    bias="cls.predictions.bias",
    bias_copy="cls.predictions.decoder.bias",
    dense="cls.predictions.transform.dense",
    norm="cls.predictions.transform.LayerNorm",
    pooler="bert.pooler.dense",
)
FIELDS = HF_TEXT_SIZES | {
    "token_types": "type_vocab_size",
    "activation": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "eps": "layer_norm_eps",
}
"""softlook's config fields -> Hugging Face's."""
BLOCK_NAMES = {
    "attn.to_query": "attention.self.query",
    "attn.to_key": "attention.self.key",
    "attn.to_value": "attention.self.value",
    "attn.to_out": "attention.output.dense",
    "attn_norm": "attention.output.LayerNorm",
    "ffn.to_up": "intermediate.dense",
    "ffn.to_out": "output.dense",
    "ffn_norm": "output.LayerNorm",
}


class HFBertConfig(encoders.HFEncoderConfig):
    """Hugging Face's BertConfig: the fields that affect the output."""

    vocab_size: PositiveInt = 30522
    max_position_embeddings: PositiveInt = 512
    type_vocab_size: PositiveInt = 2
    hidden_size: PositiveInt = 768
    num_hidden_layers: PositiveInt = 12
    num_attention_heads: PositiveInt = 12
    intermediate_size: PositiveInt = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    layer_norm_eps: NonNegativeFloat = 1e-12
    position_embedding_type: str = "absolute"
    is_decoder: bool = False
    add_cross_attention: bool = False


def encoder_config(hf_config: HFBertConfig, head: str) -> BertConfig:
    """Convert a config of BERT, RoBERTa, ELECTRA or MPNet to a BertConfig."""
    if hf_config.is_decoder or hf_config.add_cross_attention:
        raise WeightsError("is_decoder and add_cross_attention are not supported")
    if hf_config.position_embedding_type != "absolute":
        raise WeightsError(
            f"position_embedding_type {hf_config.position_embedding_type!r:.40} is not supported, only 'absolute'"
        )
    return encoders.with_head(BertConfig(**from_hf_fields(hf_config, FIELDS)), head, hf_config)


def detect_head(head: str, folder: Path, names: Collection[str]) -> str:
    """A base model may be a sentence-transformers folder, or have no pooler."""
    if head != "pooled":
        return head
    return sentence_head(folder) or (
        head if any(name.endswith("pooler.dense.weight") for name in names) else "hidden_states"
    )


def tensor_map(model: Bert) -> list[TensorRule]:
    names = HEAD_NAMES
    if model.config.head in ("next_sentence", "pretraining"):
        names = replace(names, classifier="cls.seq_relationship")
    return [*encoder_rules(model, "bert."), *names.rules(model)]


def encoder_rules(
    model: Bert, prefix: str, names: dict[str, str] = BLOCK_NAMES, stack: str = "encoder"
) -> list[TensorRule]:
    """Tensor rules of a BERT-like encoder: embeddings, and blocks with these names."""
    found: list[TensorRule] = [
        Rename("token_embedding.weight", f"{prefix}embeddings.word_embeddings.weight"),
        Rename("position_embedding.weight", f"{prefix}embeddings.position_embeddings.weight"),
        *rename_layer("embedding_norm", f"{prefix}embeddings.LayerNorm"),
        *rename_blocks(model.config.depth, f"{prefix}{stack}.layer", names),
    ]
    if model.config.token_types:
        found.append(Rename("type_embedding.weight", f"{prefix}embeddings.token_type_embeddings.weight"))
    return found


def ignored_tensors(model: Bert) -> tuple[str, ...]:
    ignored = (r"(bert\.)?embeddings\.position_ids",)
    if model.config.head == "masked_lm":
        ignored += (r"cls\.seq_relationship\.(weight|bias)",)  # part of BERT's published checkpoints
    return ignored if encoders.find_module(model, Pooler) else (*ignored, r"(bert\.)?pooler\.dense\.(weight|bias)")


def rename_legacy(name: str) -> str:
    """Legacy names of the norms' weight and bias: gamma and beta."""
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def to_config(model: Bert) -> dict[str, Any]:
    """Fields of config.json for BERT; shared by RoBERTa, ELECTRA and MPNet."""
    c = model.config
    return {**to_hf_fields(c, FIELDS), "attention_probs_dropout_prob": c.dropout, **encoders.hf_tie_field(c)}


def is_bert(model: nn.Module) -> TypeGuard[Bert]:
    """Whether a model is a Bert whose positions start at 0."""
    return isinstance(model, Bert) and not model.config.position_offset


def can_export(model: nn.Module) -> bool:
    if not is_bert(model) or not model.config.token_types:
        return False
    return encoders.is_plain_bert(model.config) and encoders.has_hf_pooler(model.config, "tanh")


IGNORED = """
    attention_probs_dropout_prob classifier_dropout directionality pooler_fc_size pooler_num_attention_heads
    pooler_num_fc_layers pooler_size_per_head pooler_type
"""
BERT = HFArchitecture(
    name="BERT",
    model_type="bert",
    config_class=HFBertConfig,
    ignored_fields=frozenset(IGNORED.split()),
    head_by_class=encoders.encoder_heads("Bert", "pooled")
    | {"BertForNextSentencePrediction": "next_sentence", "BertForPreTraining": "pretraining"},
    base_model_prefix="bert.",
    rename_legacy=rename_legacy,
    detect_head=detect_head,
    resolve_tying=HEAD_NAMES.resolve_tying,
    build=lambda hf_config, head: Bert(encoder_config(hf_config, head)),
    tensor_map=tensor_map,
    ignored_tensors=ignored_tensors,
    can_export=can_export,
    to_config=to_config,
    extra_files=encoders.sentence_files_of,
)


ELECTRA_HEAD_NAMES = encoders.HeadNames(
    embedding="electra.embeddings.word_embeddings.weight",
    weight="generator_lm_head.weight",
    bias="generator_lm_head.bias",
    dense="generator_predictions.dense",
    norm="generator_predictions.LayerNorm",
    pooler="sequence_summary.summary",
    has_own_pooler=True,
)


class HFElectraConfig(HFBertConfig):
    """Hugging Face's ElectraConfig: the fields that affect the output."""

    embedding_size: PositiveInt = 128
    hidden_size: PositiveInt = 256
    num_attention_heads: PositiveInt = 4
    intermediate_size: PositiveInt = 1024
    summary_type: str = "first"
    summary_use_proj: bool = True
    summary_activation: str | None = "gelu"
    summary_proj_to_labels: bool = False


def build_electra(hf_config: HFElectraConfig, head: str) -> Bert:
    encoders.check_head_activation(hf_config.hidden_act, head, "ELECTRA")
    summary = (
        hf_config.summary_type,
        hf_config.summary_use_proj,
        hf_config.summary_activation,
        hf_config.summary_proj_to_labels,
    )
    if head == "multiple_choice" and summary != ("first", True, "gelu", False):
        raise WeightsError(
            "summary_type, summary_use_proj, summary_activation and summary_proj_to_labels must be 'first', true, "
            f"'gelu' and false, got {summary!r:.80}"
        )
    config = encoder_config(hf_config, head)
    embedding_dim = None if hf_config.embedding_size == hf_config.hidden_size else hf_config.embedding_size
    return Bert(replace(config, embedding_dim=embedding_dim, pooler=None if config.pooler is None else "gelu"))


def electra_tensor_map(model: Bert) -> list[TensorRule]:
    found = [*encoder_rules(model, "electra."), *ELECTRA_HEAD_NAMES.rules(model)]
    if isinstance(model.project_in, nn.Linear):
        found += rename_layer("project_in", "electra.embeddings_project")
    if replaced := encoders.find_module(model, ReplacedTokenHead):
        found += rename_layer(f"{replaced}.dense", "discriminator_predictions.dense")
        found += rename_layer(f"{replaced}.to_logit", "discriminator_predictions.dense_prediction")
    return found


def to_electra_config(model: Bert) -> dict[str, Any]:
    c = model.config
    return to_config(model) | {"embedding_size": c.dim if c.embedding_dim is None else c.embedding_dim}


def can_export_electra(model: nn.Module) -> bool:
    """Models that can be exported as BERT are."""
    if not is_bert(model) or model.config.buckets or not model.config.token_types:
        return False
    c = model.config
    if c.head in ("next_sentence", "pretraining") or (c.head == "masked_lm" and c.activation != "gelu"):
        return False
    return not has_pooler(c) and encoders.has_hf_pooler(c, "gelu")


def has_pooler(c: BertConfig) -> bool:
    """Whether this is a base model with a dense pooler, which ELECTRA and DistilBERT lack."""
    return c.head == "pooled" and c.pooler is not None


ELECTRA = replace(
    BERT,
    name="ELECTRA",
    model_type="electra",
    config_class=HFElectraConfig,
    ignored_fields=frozenset({"attention_probs_dropout_prob", "classifier_dropout", "summary_last_dropout"}),
    head_by_class=encoders.encoder_heads("Electra") | {"ElectraForPreTraining": "replaced_token"},
    base_model_prefix="electra.",
    detect_head=encoders.detect_sentence_head,
    resolve_tying=ELECTRA_HEAD_NAMES.resolve_tying,
    build=build_electra,
    tensor_map=electra_tensor_map,
    ignored_tensors=lambda model: (r"(electra\.)?embeddings\.position_ids",),
    can_export=can_export_electra,
    to_config=to_electra_config,
)


DISTILBERT_HEAD_NAMES = encoders.HeadNames(
    embedding="distilbert.embeddings.word_embeddings.weight",
    weight="vocab_projector.weight",
    bias="vocab_projector.bias",
    dense="vocab_transform",
    norm="vocab_layer_norm",
    pooler="pre_classifier",
)
DISTILBERT_FIELDS = {
    "vocab_size": "vocab_size",
    "context": "max_position_embeddings",
    "dim": "dim",
    "depth": "n_layers",
    "heads": "n_heads",
    "hidden": "hidden_dim",
    "activation": "activation",
    "dropout": "dropout",
}
DISTILBERT_BLOCK_NAMES = {
    "attn.to_query": "attention.q_lin",
    "attn.to_key": "attention.k_lin",
    "attn.to_value": "attention.v_lin",
    "attn.to_out": "attention.out_lin",
    "attn_norm": "sa_layer_norm",
    "ffn.to_up": "ffn.lin1",
    "ffn.to_out": "ffn.lin2",
    "ffn_norm": "output_layer_norm",
}
DISTILBERT_EPS = 1e-12
"""Epsilon of the norms; not part of the config."""


class HFDistilBertConfig(encoders.HFEncoderConfig):
    """Hugging Face's DistilBertConfig: the fields that affect the output."""

    vocab_size: PositiveInt = 30522
    max_position_embeddings: PositiveInt = 512
    dim: PositiveInt = 768
    n_layers: PositiveInt = 6
    n_heads: PositiveInt = 12
    hidden_dim: PositiveInt = 3072
    activation: str = "gelu"
    dropout: float = 0.1


def build_distilbert(hf_config: HFDistilBertConfig, head: str) -> Bert:
    fields = from_hf_fields(hf_config, DISTILBERT_FIELDS)
    config = BertConfig(**fields, token_types=0, eps=DISTILBERT_EPS, pooler="relu")
    return Bert(encoders.with_head(config, head, hf_config))


def distilbert_tensor_map(model: Bert) -> list[TensorRule]:
    encoder = encoder_rules(model, "distilbert.", DISTILBERT_BLOCK_NAMES, stack="transformer")
    return [*encoder, *DISTILBERT_HEAD_NAMES.rules(model)]


def to_distilbert_config(model: Bert) -> dict[str, Any]:
    c = model.config
    dropouts = dict.fromkeys(("attention_dropout", "qa_dropout", "seq_classif_dropout"), c.dropout)
    return {**to_hf_fields(c, DISTILBERT_FIELDS), **dropouts, **encoders.hf_tie_field(c)}


def can_export_distilbert(model: nn.Module) -> bool:
    if not is_bert(model) or model.config.token_types or model.config.eps != DISTILBERT_EPS:
        return False
    c = model.config
    if c.head in ("next_sentence", "pretraining") or has_pooler(c):
        return False
    return encoders.is_plain_bert(c) and encoders.has_hf_pooler(c, "relu")


DISTILBERT_IGNORED = "attention_dropout qa_dropout seq_classif_dropout sinusoidal_pos_embds tie_weights_"
DISTILBERT = replace(
    BERT,
    name="DistilBERT",
    model_type="distilbert",
    config_class=HFDistilBertConfig,
    ignored_fields=frozenset(DISTILBERT_IGNORED.split()),  # sinusoidal positions are stored like learned ones
    head_by_class=encoders.encoder_heads("DistilBert"),
    base_model_prefix="distilbert.",
    detect_head=encoders.detect_sentence_head,
    resolve_tying=DISTILBERT_HEAD_NAMES.resolve_tying,
    build=build_distilbert,
    tensor_map=distilbert_tensor_map,
    ignored_tensors=lambda model: (r"(distilbert\.)?embeddings\.position_ids",),
    can_export=can_export_distilbert,
    to_config=to_distilbert_config,
)
