"""RoBERTa, XLM-RoBERTa and CamemBERT: BERT with positions that start behind the padding, and other heads."""

from dataclasses import replace
from typing import Any

from pydantic import NonNegativeInt, PositiveInt
from torch import nn

from softlook.base.errors import WeightsError
from softlook.heads.classify import ClassHead, SpanHead, TagHead
from softlook.heads.pooling import DensePool
from softlook.heads.words import WordHead
from softlook.models.bert import Bert, BertConfig
from softlook.weights.families import bert, encoders
from softlook.weights.family import Family
from softlook.weights.renaming import Rule, layer

CLASSES = {
    "Model": "pooled",
    "ForMaskedLM": "words",
    "ForSequenceClassification": "classes",
    "ForMultipleChoice": "choices",
    "ForTokenClassification": "tags",
    "ForQuestionAnswering": "spans",
}
"""How the names of their classes end -> the head."""
ARCHITECTURES = {f"Roberta{name}": head for name, head in CLASSES.items()}


def word_names(prefix: str) -> encoders.WordNames:
    """The last layer of a head for words, as RoBERTa and MPNet name it."""
    return encoders.WordNames(
        table=f"{prefix}embeddings.word_embeddings.weight",
        weight="lm_head.decoder.weight",
        bias="lm_head.bias",
        bias_copy="lm_head.decoder.bias",
    )


PREFIX = "roberta."
WORDS = word_names(PREFIX)


class Roberta(bert.BERT):
    """Hugging Face's RobertaConfig, as far as it changes the numbers."""

    vocab_size: PositiveInt = 50265
    pad_token_id: NonNegativeInt = 1


class SmallerVocabulary(Roberta):
    """XLMRobertaConfig and CamembertConfig: RoBERTa's with another default."""

    vocab_size: PositiveInt = 30522


def build(theirs: Roberta, head: str) -> Bert:
    encoders.check_gelu(theirs.hidden_act, head, "RoBERTa")
    offset = theirs.pad_token_id + 1  # the rows up to the padding's own are never a token's
    if theirs.max_position_embeddings <= offset:
        raise WeightsError(f"{theirs.max_position_embeddings} positions leave none behind the padding's, {offset - 1}")
    config = bert.encoder_config(theirs, head)
    return Bert(replace(config, offset=offset, context=config.context - offset))


def rules(model: Bert) -> list[Rule]:
    return [*bert.encoder_rules(model, PREFIX), *head_rules(model, PREFIX)]


def head_rules(model: Bert, prefix: str) -> list[Rule]:
    """Everything above the encoder, as RoBERTa and MPNet name it."""
    found: list[Rule] = []
    in_two_steps = model.config.head == "classes"  # their head for classes has a pooler of its own inside
    if pool := encoders.place(model, DensePool):
        found += layer(f"{pool}.to_pooled", "classifier.dense" if in_two_steps else f"{prefix}pooler.dense")
    if words := encoders.place(model, WordHead):
        found += layer(f"{words}.to_hidden", "lm_head.dense")
        found += layer(f"{words}.norm", "lm_head.layer_norm")
        found += word_names(prefix).rules(words, tied=model.config.tied)
    if classes := encoders.place(model, ClassHead, TagHead):
        found += layer(f"{classes}.to_classes", "classifier.out_proj" if in_two_steps else "classifier")
    if ends := encoders.place(model, SpanHead):
        found += layer(f"{ends}.to_ends", "qa_outputs")
    return found


def ignored(model: Bert) -> tuple[str, ...]:
    aside = (r"(\w+\.)?embeddings\.position_ids",)
    used = model.config.head in ("pooled", "choices") and encoders.place(model, DensePool)
    return aside if used else (*aside, r"(\w+\.)?pooler\.dense\.(weight|bias)")


def describe(model: Bert) -> dict[str, Any]:
    c = model.config
    return {
        "architectures": [encoders.architecture(model, ARCHITECTURES)],
        **bert.encoder_description(model),
        "max_position_embeddings": c.context + c.offset,
        "pad_token_id": c.offset - 1,
    }


def writes(model: nn.Module) -> bool:
    if not isinstance(model, Bert) or not model.config.offset or not model.config.segments:
        return False
    return encoders.plain(model.config) and has_head(model.config)


def has_head(c: BertConfig) -> bool:
    """Has RoBERTa such a head, or MPNet?"""
    if c.head in ("next", "pretraining") or (c.head == "words" and c.activation != "gelu"):
        return False
    return encoders.pools_alike(c, "tanh")


FAMILY = Family(
    name="RoBERTa",
    model_type="roberta",
    schema=Roberta,
    harmless=frozenset({"attention_probs_dropout_prob", "classifier_dropout"}),
    architectures=ARCHITECTURES,
    prefix=PREFIX,
    head=bert.found_head,
    settle=WORDS.settle,
    build=build,
    rules=rules,
    ignored=ignored,
    writes=writes,
    bare=encoders.bare,
    describe=describe,
    beside=encoders.beside,
)
XLM_ROBERTA = replace(
    FAMILY,
    name="XLM-RoBERTa",
    model_type="xlm-roberta",
    schema=SmallerVocabulary,
    architectures={f"XLMRoberta{name}": head for name, head in CLASSES.items()},
    writes=lambda model: False,  # the same tensors and numbers: written as RoBERTa
)
CAMEMBERT = replace(
    XLM_ROBERTA,
    name="CamemBERT",
    model_type="camembert",
    architectures={f"Camembert{name}": head for name, head in CLASSES.items()},
)
