"""DistilBERT: a BERT without segments and without a pooler, half as deep, with names of its own."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from pydantic import PositiveInt
from torch import nn

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
    "DistilBertModel": "states",
    "DistilBertForMaskedLM": "words",
    "DistilBertForSequenceClassification": "classes",
    "DistilBertForMultipleChoice": "choices",
    "DistilBertForTokenClassification": "tags",
    "DistilBertForQuestionAnswering": "spans",
}
WORDS = encoders.WordNames(
    table="distilbert.embeddings.word_embeddings.weight", weight="vocab_projector.weight", bias="vocab_projector.bias"
)
EPS = 1e-12
"""Of every norm: their config has no field for it."""


class DistilBERT(encoders.EncoderConfig):
    """Hugging Face's DistilBertConfig, as far as it changes the numbers."""

    vocab_size: PositiveInt = 30522
    max_position_embeddings: PositiveInt = 512
    dim: PositiveInt = 768
    n_layers: PositiveInt = 6
    n_heads: PositiveInt = 12
    hidden_dim: PositiveInt = 3072
    activation: str = "gelu"
    dropout: float = 0.1


def build(theirs: DistilBERT, head: str) -> Bert:
    config = BertConfig(
        vocab=theirs.vocab_size,
        context=theirs.max_position_embeddings,
        segments=0,
        dim=theirs.dim,
        depth=theirs.n_layers,
        heads=theirs.n_heads,
        hidden=theirs.hidden_dim,
        activation=from_theirs(theirs.activation),
        dropout=theirs.dropout,
        eps=EPS,
        pooler="relu",
    )
    return Bert(encoders.with_head(config, head, theirs))


def found_head(named: str, folder: Path, names: Collection[str]) -> str:
    """A bare model may have been saved with sentence-transformers."""
    return sentence_head(folder) or named if named == "states" else named


def rules(model: Bert) -> list[Rule]:
    found = encoder_rules(model)
    if pool := encoders.place(model, DensePool):
        found += layer(f"{pool}.to_pooled", "pre_classifier")
    if words := encoders.place(model, WordHead):
        found += layer(f"{words}.to_hidden", "vocab_transform")
        found += layer(f"{words}.norm", "vocab_layer_norm")
        found += WORDS.rules(words, tied=model.config.tied)
    if classes := encoders.place(model, ClassHead, TagHead):
        found += layer(f"{classes}.to_classes", "classifier")
    if ends := encoders.place(model, SpanHead):
        found += layer(f"{ends}.to_ends", "qa_outputs")
    return found


def encoder_rules(model: Bert) -> list[Rule]:
    found: list[Rule] = [
        Same("tokens.table.weight", "distilbert.embeddings.word_embeddings.weight"),
        Same("places.table.weight", "distilbert.embeddings.position_embeddings.weight"),
        *layer("norm", "distilbert.embeddings.LayerNorm"),
    ]
    for i in range(model.config.depth):
        ours, theirs = f"blocks.{i}", f"distilbert.transformer.layer.{i}"
        found += [
            *layer(f"{ours}.attend.to_query", f"{theirs}.attention.q_lin"),
            *layer(f"{ours}.attend.to_key", f"{theirs}.attention.k_lin"),
            *layer(f"{ours}.attend.to_value", f"{theirs}.attention.v_lin"),
            *layer(f"{ours}.attend.to_out", f"{theirs}.attention.out_lin"),
            *layer(f"{ours}.around_attend.norm", f"{theirs}.sa_layer_norm"),
            *layer(f"{ours}.feed.to_hidden", f"{theirs}.ffn.lin1"),
            *layer(f"{ours}.feed.to_out", f"{theirs}.ffn.lin2"),
            *layer(f"{ours}.around_feed.norm", f"{theirs}.output_layer_norm"),
        ]
    return found


def ignored(model: Bert) -> tuple[str, ...]:
    return (r"(distilbert\.)?embeddings\.position_ids",)


def describe(model: Bert) -> dict[str, Any]:
    c = model.config
    return {
        "architectures": [encoders.architecture(model, ARCHITECTURES)],
        "vocab_size": c.vocab,
        "max_position_embeddings": c.context,
        "dim": c.dim,
        "n_layers": c.depth,
        "n_heads": c.heads,
        "hidden_dim": 4 * c.dim if c.hidden is None else c.hidden,
        "activation": to_theirs(c.activation),
        **dict.fromkeys(("dropout", "attention_dropout", "qa_dropout", "seq_classif_dropout"), c.dropout),
        **encoders.tie(c),
        **encoders.label_names(c),
    }


def writes(model: nn.Module) -> bool:
    if not isinstance(model, Bert) or model.config.offset or model.config.segments or model.config.eps != EPS:
        return False
    c = model.config
    if c.head in ("next", "pretraining") or (c.head == "pooled" and c.pooler is not None):
        return False
    return encoders.plain(c) and encoders.pools_alike(c, "relu")


ASIDE = "attention_dropout qa_dropout seq_classif_dropout sinusoidal_pos_embds tie_weights_"
FAMILY = Family(
    name="DistilBERT",
    model_type="distilbert",
    schema=DistilBERT,
    harmless=frozenset(ASIDE.split()),  # sinusoidal positions too are read from the file, as a table
    architectures=ARCHITECTURES,
    prefix="distilbert.",
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
