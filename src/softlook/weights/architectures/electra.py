"""ELECTRA, discriminator and generator."""

from dataclasses import replace
from typing import Any

from pydantic import PositiveInt
from torch import nn

from softlook.base.errors import WeightsError
from softlook.heads.classification import ClassificationHead, ReplacedTokenHead, SpanHead, TokenClassificationHead
from softlook.heads.lm import MaskedLMHead
from softlook.heads.pooling import Pooler
from softlook.models.bert import Bert
from softlook.weights.architectures import bert, encoders
from softlook.weights.architectures.base import HFArchitecture
from softlook.weights.tensor_map import TensorRule, rename_layer

HEAD_BY_CLASS = {
    "ElectraModel": "hidden_states",
    "ElectraForPreTraining": "replaced_token",
    "ElectraForMaskedLM": "masked_lm",
    "ElectraForSequenceClassification": "classification",
    "ElectraForMultipleChoice": "multiple_choice",
    "ElectraForTokenClassification": "token_classification",
    "ElectraForQuestionAnswering": "question_answering",
}
PREFIX = "electra."
LM_HEAD_NAMES = encoders.LMHeadNames(
    embedding="electra.embeddings.word_embeddings.weight",
    weight="generator_lm_head.weight",
    bias="generator_lm_head.bias",
)


class HFElectraConfig(bert.HFBertConfig):
    """Hugging Face's ElectraConfig: the fields that affect the output."""

    embedding_size: PositiveInt = 128
    hidden_size: PositiveInt = 256
    num_attention_heads: PositiveInt = 4
    intermediate_size: PositiveInt = 1024
    summary_type: str = "first"
    summary_use_proj: bool = True
    summary_activation: str | None = "gelu"
    summary_proj_to_labels: bool = False


def build(hf_config: HFElectraConfig, head: str) -> Bert:
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
    config = bert.encoder_config(hf_config, head)
    embedding_dim = None if hf_config.embedding_size == hf_config.hidden_size else hf_config.embedding_size
    return Bert(replace(config, embedding_dim=embedding_dim, pooler=None if config.pooler is None else "gelu"))


def tensor_map(model: Bert) -> list[TensorRule]:
    found = bert.encoder_rules(model, PREFIX)
    if isinstance(model.project_in, nn.Linear):
        found += rename_layer("project_in", f"{PREFIX}embeddings_project")
    in_two_steps = model.config.head == "classification"
    if pool := encoders.find_module(model, Pooler):
        found += rename_layer(f"{pool}.dense", "classifier.dense" if in_two_steps else "sequence_summary.summary")
    if words := encoders.find_module(model, MaskedLMHead):
        found += rename_layer(f"{words}.dense", "generator_predictions.dense")
        found += rename_layer(f"{words}.norm", "generator_predictions.LayerNorm")
        found += LM_HEAD_NAMES.rules(words, tied=model.config.tie_embeddings)
    if replaced := encoders.find_module(model, ReplacedTokenHead):
        found += rename_layer(f"{replaced}.dense", "discriminator_predictions.dense")
        found += rename_layer(f"{replaced}.to_logit", "discriminator_predictions.dense_prediction")
    if classes := encoders.find_module(model, ClassificationHead, TokenClassificationHead):
        found += rename_layer(f"{classes}.to_classes", "classifier.out_proj" if in_two_steps else "classifier")
    if ends := encoders.find_module(model, SpanHead):
        found += rename_layer(f"{ends}.to_span", "qa_outputs")
    return found


def to_config(model: Bert) -> dict[str, Any]:
    c = model.config
    return {
        "architectures": [encoders.hf_class(model, HEAD_BY_CLASS)],
        **bert.encoder_fields(model),
        "embedding_size": c.dim if c.embedding_dim is None else c.embedding_dim,
    }


def can_export(model: nn.Module) -> bool:
    """Models that can be exported as BERT are."""
    if (
        not isinstance(model, Bert)
        or model.config.position_offset
        or model.config.buckets
        or not model.config.token_types
    ):
        return False
    c = model.config
    if c.head in ("next_sentence", "pretraining") or (c.head == "masked_lm" and c.activation != "gelu"):
        return False
    if c.head == "pooled" and c.pooler is not None:
        return False
    return encoders.has_hf_pooler(c, "gelu")


ARCHITECTURE = HFArchitecture(
    name="ELECTRA",
    model_type="electra",
    config_class=HFElectraConfig,
    ignored_fields=frozenset({"attention_probs_dropout_prob", "classifier_dropout", "summary_last_dropout"}),
    head_by_class=HEAD_BY_CLASS,
    base_model_prefix=PREFIX,
    rename_legacy=bert.rename_legacy,
    detect_head=encoders.detect_sentence_head,
    resolve_tying=LM_HEAD_NAMES.resolve_tying,
    build=build,
    tensor_map=tensor_map,
    ignored_tensors=lambda model: (r"(electra\.)?embeddings\.position_ids",),
    can_export=can_export,
    is_base_model=encoders.is_base_model,
    to_config=to_config,
    extra_files=encoders.sentence_files_of,
)
