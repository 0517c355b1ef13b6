"""BERT, with each of its heads. RoBERTa, whose encoder is named alike, shares the parts that are not BERT's alone."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from pydantic import NonNegativeFloat, PositiveInt
from torch import nn

from softlook.base.errors import WeightsError
from softlook.heads.classify import ClassHead, SpanHead, TagHead
from softlook.heads.pooling import DensePool
from softlook.heads.words import WordHead
from softlook.models.bert import Bert, BertConfig
from softlook.weights.families import encoders
from softlook.weights.families.activations import from_theirs, to_theirs
from softlook.weights.family import Family
from softlook.weights.renaming import Rule, Same, layer
from softlook.weights.sentence import sentence_head

ARCHITECTURES = {
    "BertModel": "pooled",
    "BertForMaskedLM": "words",
    "BertForNextSentencePrediction": "next",
    "BertForPreTraining": "pretraining",
    "BertForSequenceClassification": "classes",
    "BertForMultipleChoice": "choices",
    "BertForTokenClassification": "tags",
    "BertForQuestionAnswering": "spans",
}

WORDS = encoders.WordNames(
    table="bert.embeddings.word_embeddings.weight",
    weight="cls.predictions.decoder.weight",
    bias="cls.predictions.bias",
    bias_copy="cls.predictions.decoder.bias",
)


class BERT(encoders.EncoderConfig):
    """Hugging Face's BertConfig, as far as it changes the numbers."""

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


def build(theirs: BERT, head: str) -> Bert:
    return Bert(encoder_config(theirs, head))


def encoder_config(theirs: BERT, head: str) -> BertConfig:
    """What BERT's config and RoBERTa's say alike."""
    if theirs.is_decoder or theirs.add_cross_attention:
        raise WeightsError("this model is a decoder, which looks back or across; softlook's Bert looks both ways")
    if theirs.position_embedding_type != "absolute":
        raise WeightsError(
            f"this model has {theirs.position_embedding_type!r:.40} positions; softlook's Bert has absolute ones only"
        )
    config = BertConfig(
        vocab=theirs.vocab_size,
        context=theirs.max_position_embeddings,
        segments=theirs.type_vocab_size,
        dim=theirs.hidden_size,
        depth=theirs.num_hidden_layers,
        heads=theirs.num_attention_heads,
        hidden=theirs.intermediate_size,
        activation=from_theirs(theirs.hidden_act),
        dropout=theirs.hidden_dropout_prob,
        eps=theirs.layer_norm_eps,
    )
    return encoders.with_head(config, head, theirs)


def found_head(named: str, folder: Path, names: Collection[str]) -> str:
    """A bare model may have been saved with sentence-transformers, or without its pooler."""
    if named != "pooled":
        return named
    return sentence_head(folder) or (named if any(name.endswith("pooler.dense.weight") for name in names) else "states")


def rules(model: Bert) -> list[Rule]:
    found = encoder_rules(model, "bert.")
    if pool := encoders.place(model, DensePool):
        found += layer(f"{pool}.to_pooled", "bert.pooler.dense")
    if words := encoders.place(model, WordHead):
        found += layer(f"{words}.to_hidden", "cls.predictions.transform.dense")
        found += layer(f"{words}.norm", "cls.predictions.transform.LayerNorm")
        found += WORDS.rules(words, tied=model.config.tied)
    if classes := encoders.place(model, ClassHead, TagHead):
        pair = model.config.head in ("next", "pretraining")
        found += layer(f"{classes}.to_classes", "cls.seq_relationship" if pair else "classifier")
    if ends := encoders.place(model, SpanHead):
        found += layer(f"{ends}.to_ends", "qa_outputs")
    return found


def encoder_rules(model: Bert, prefix: str) -> list[Rule]:
    """Everything below the head, as BERT and RoBERTa name it."""
    found: list[Rule] = [
        Same("tokens.table.weight", f"{prefix}embeddings.word_embeddings.weight"),
        Same("places.table.weight", f"{prefix}embeddings.position_embeddings.weight"),
        Same("segments.table.weight", f"{prefix}embeddings.token_type_embeddings.weight"),
        *layer("norm", f"{prefix}embeddings.LayerNorm"),
    ]
    for i in range(model.config.depth):
        ours, theirs = f"blocks.{i}", f"{prefix}encoder.layer.{i}"
        for part in ("query", "key", "value"):
            found += layer(f"{ours}.attend.to_{part}", f"{theirs}.attention.self.{part}")
        found += [
            *layer(f"{ours}.attend.to_out", f"{theirs}.attention.output.dense"),
            *layer(f"{ours}.around_attend.norm", f"{theirs}.attention.output.LayerNorm"),
            *layer(f"{ours}.feed.to_hidden", f"{theirs}.intermediate.dense"),
            *layer(f"{ours}.feed.to_out", f"{theirs}.output.dense"),
            *layer(f"{ours}.around_feed.norm", f"{theirs}.output.LayerNorm"),
        ]
    return found


def ignored(model: Bert) -> tuple[str, ...]:
    aside = (r"(bert\.)?embeddings\.position_ids",)
    if model.config.head == "words":
        aside += (r"cls\.seq_relationship\.(weight|bias)",)  # BERT's own checkpoints keep it
    return aside if encoders.place(model, DensePool) else (*aside, r"(bert\.)?pooler\.dense\.(weight|bias)")


def modern(name: str) -> str:
    """BERT's first checkpoints call a norm's weight and bias gamma and beta."""
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def describe(model: Bert) -> dict[str, Any]:
    return {"architectures": [encoders.architecture(model, ARCHITECTURES)], **encoder_description(model)}


def encoder_description(model: Bert) -> dict[str, Any]:
    """What BERT's config and RoBERTa's say alike."""
    c = model.config
    return {
        "vocab_size": c.vocab,
        "max_position_embeddings": c.context,
        "type_vocab_size": c.segments,
        "hidden_size": c.dim,
        "num_hidden_layers": c.depth,
        "num_attention_heads": c.heads,
        "intermediate_size": 4 * c.dim if c.hidden is None else c.hidden,
        "hidden_act": to_theirs(c.activation),
        "hidden_dropout_prob": c.dropout,
        "attention_probs_dropout_prob": c.dropout,
        "layer_norm_eps": c.eps,
        **encoders.tie(c),
        **encoders.label_names(c),
    }


def writes(model: nn.Module) -> bool:
    if not isinstance(model, Bert) or model.config.offset or not model.config.segments:
        return False
    return encoders.plain(model.config) and encoders.pools_alike(model.config, "tanh")


ASIDE = """
    attention_probs_dropout_prob classifier_dropout directionality pooler_fc_size pooler_num_attention_heads
    pooler_num_fc_layers pooler_size_per_head pooler_type
"""
FAMILY = Family(
    name="BERT",
    model_type="bert",
    schema=BERT,
    harmless=frozenset(ASIDE.split()),
    architectures=ARCHITECTURES,
    prefix="bert.",
    modern=modern,
    head=found_head,
    settle=WORDS.settle,
    build=build,
    rules=rules,
    ignored=ignored,
    writes=writes,
    bare=encoders.bare,
    describe=describe,
    beside=encoders.beside,
)
