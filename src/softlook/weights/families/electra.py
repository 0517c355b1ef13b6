"""ELECTRA, discriminator and generator: BERT's encoder, whose embedding may be narrower, with heads of its own."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import PositiveInt
from torch import nn

from softlook.base.errors import WeightsError
from softlook.heads.classify import ClassHead, ReplacedHead, SpanHead, TagHead
from softlook.heads.pooling import DensePool
from softlook.heads.words import WordHead
from softlook.models.bert import Bert
from softlook.weights.families import bert, encoders
from softlook.weights.family import Family
from softlook.weights.renaming import Rule, layer
from softlook.weights.sentence import sentence_head

ARCHITECTURES = {
    "ElectraModel": "states",
    "ElectraForPreTraining": "replaced",
    "ElectraForMaskedLM": "words",
    "ElectraForSequenceClassification": "classes",
    "ElectraForMultipleChoice": "choices",
    "ElectraForTokenClassification": "tags",
    "ElectraForQuestionAnswering": "spans",
}
PREFIX = "electra."
WORDS = encoders.WordNames(
    table="electra.embeddings.word_embeddings.weight", weight="generator_lm_head.weight", bias="generator_lm_head.bias"
)


class Electra(bert.BERT):
    """Hugging Face's ElectraConfig, as far as it changes the numbers."""

    embedding_size: PositiveInt = 128
    hidden_size: PositiveInt = 256
    num_attention_heads: PositiveInt = 4
    intermediate_size: PositiveInt = 1024
    summary_type: str = "first"
    summary_use_proj: bool = True
    summary_activation: str | None = "gelu"
    summary_proj_to_labels: bool = False


def build(theirs: Electra, head: str) -> Bert:
    encoders.check_gelu(theirs.hidden_act, head, "ELECTRA")
    summary = (theirs.summary_type, theirs.summary_use_proj, theirs.summary_activation, theirs.summary_proj_to_labels)
    if head == "choices" and summary != ("first", True, "gelu", False):
        raise WeightsError(
            "the score of a choice should come from the first token, by a dense layer with a GELU (summary_type "
            f"'first', summary_use_proj, summary_activation 'gelu', no summary_proj_to_labels); {summary!r:.80} came"
        )
    config = bert.encoder_config(theirs, head)
    narrow = None if theirs.embedding_size == theirs.hidden_size else theirs.embedding_size
    return Bert(replace(config, embedding=narrow, pooler=None if config.pooler is None else "gelu"))


def found_head(named: str, folder: Path, names: Collection[str]) -> str:
    """A bare model may have been saved with sentence-transformers."""
    return sentence_head(folder) or named if named == "states" else named


def rules(model: Bert) -> list[Rule]:
    found = bert.encoder_rules(model, PREFIX)
    if isinstance(model.widen, nn.Linear):
        found += layer("widen", f"{PREFIX}embeddings_project")
    in_two_steps = model.config.head == "classes"
    if pool := encoders.place(model, DensePool):
        found += layer(f"{pool}.to_pooled", "classifier.dense" if in_two_steps else "sequence_summary.summary")
    if words := encoders.place(model, WordHead):
        found += layer(f"{words}.to_hidden", "generator_predictions.dense")
        found += layer(f"{words}.norm", "generator_predictions.LayerNorm")
        found += WORDS.rules(words, tied=model.config.tied)
    if replaced := encoders.place(model, ReplacedHead):
        found += layer(f"{replaced}.to_hidden", "discriminator_predictions.dense")
        found += layer(f"{replaced}.to_score", "discriminator_predictions.dense_prediction")
    if classes := encoders.place(model, ClassHead, TagHead):
        found += layer(f"{classes}.to_classes", "classifier.out_proj" if in_two_steps else "classifier")
    if ends := encoders.place(model, SpanHead):
        found += layer(f"{ends}.to_ends", "qa_outputs")
    return found


def describe(model: Bert) -> dict[str, Any]:
    c = model.config
    return {
        "architectures": [encoders.architecture(model, ARCHITECTURES)],
        **bert.encoder_description(model),
        "embedding_size": c.dim if c.embedding is None else c.embedding,
    }


def writes(model: nn.Module) -> bool:
    """A model that BERT's names are for is written as BERT."""
    if not isinstance(model, Bert) or model.config.offset or model.config.buckets or not model.config.segments:
        return False
    c = model.config
    if c.head in ("next", "pretraining") or (c.head == "words" and c.activation != "gelu"):
        return False
    if c.head == "pooled" and c.pooler is not None:
        return False
    return encoders.pools_alike(c, "gelu")


FAMILY = Family(
    name="ELECTRA",
    model_type="electra",
    schema=Electra,
    harmless=frozenset({"attention_probs_dropout_prob", "classifier_dropout", "summary_last_dropout"}),
    architectures=ARCHITECTURES,
    prefix=PREFIX,
    modern=bert.modern,
    head=found_head,
    settle=WORDS.settle,
    build=build,
    rules=rules,
    ignored=lambda model: (r"(electra\.)?embeddings\.position_ids",),
    writes=writes,
    bare=encoders.bare,
    describe=describe,
    beside=encoders.beside,
)
