"""DeBERTa, v2 and v3, with each of its heads."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import NonNegativeInt, PositiveInt
from torch import nn

from softlook.base.errors import WeightsError
from softlook.heads.classify import ClassHead, SpanHead, TagHead
from softlook.heads.pooling import DensePool
from softlook.heads.words import WordHead
from softlook.models.deberta import Convolution, Deberta, DebertaConfig
from softlook.weights.families import bert, encoders
from softlook.weights.families.activations import from_theirs, to_theirs
from softlook.weights.family import Family
from softlook.weights.renaming import Rule, Same, Tensors, layer
from softlook.weights.sentence import sentence_head

ARCHITECTURES = {
    "DebertaV2Model": "states",
    "DebertaV2ForMaskedLM": "words",
    "DebertaV2ForSequenceClassification": "classes",
    "DebertaV2ForMultipleChoice": "choices",
    "DebertaV2ForTokenClassification": "tags",
    "DebertaV2ForQuestionAnswering": "spans",
}
PREFIX = "deberta."
WORDS = replace(bert.WORDS, table="deberta.embeddings.word_embeddings.weight")
NEWER = {
    "lm_predictions.lm_head.dense": "cls.predictions.transform.dense",
    "lm_predictions.lm_head.LayerNorm": "cls.predictions.transform.LayerNorm",
    "lm_predictions.lm_head.bias": "cls.predictions.bias",
}
"""The head for words where `legacy` is false -> the same where it is true, as it is written."""


class Theirs(encoders.EncoderConfig):
    """Hugging Face's DebertaV2Config, as far as it changes the numbers."""

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
    def parts(self) -> list[str]:
        """Of the scores: c2p, p2c."""
        told = self.pos_att_type or []
        told = [part.strip() for part in told.lower().split("|")] if isinstance(told, str) else told
        return [part for part in ("c2p", "p2c") if part in told]

    @property
    def norms(self) -> bool:
        """Is there a norm behind the vectors of distances?"""
        return "layer_norm" in [part.strip() for part in self.norm_rel_ebd.lower().split("|")]


def check(theirs: Theirs) -> None:
    """What softlook's Deberta cannot express is an error, not a guess."""
    if theirs.relative_attention is not bool(theirs.parts) or (theirs.norms and not theirs.relative_attention):
        raise WeightsError(
            "relative_attention should be true where pos_att_type names c2p or p2c, or norm_rel_ebd a norm, and only "
            f"there; relative_attention={theirs.relative_attention}, pos_att_type={theirs.pos_att_type!r:.60}, "
            f"norm_rel_ebd={theirs.norm_rel_ebd!r:.40} came"
        )
    for field, wanted in {
        "attention_head_size": theirs.hidden_size // theirs.num_attention_heads,
        "pooler_hidden_size": theirs.hidden_size,
    }.items():
        if getattr(theirs, field) not in (None, wanted):
            raise WeightsError(f"{field} should be {wanted} by the other sizes; {getattr(theirs, field)} came")


def build(theirs: Theirs, head: str) -> Deberta:
    check(theirs)
    reach = theirs.max_relative_positions if theirs.max_relative_positions > 0 else theirs.max_position_embeddings
    narrow = None if theirs.embedding_size == theirs.hidden_size else theirs.embedding_size
    config = DebertaConfig(
        vocab=theirs.vocab_size,
        context=theirs.max_position_embeddings,
        absolute=theirs.position_biased_input,
        segments=theirs.type_vocab_size,
        dim=theirs.hidden_size,
        embedding=narrow,
        depth=theirs.num_hidden_layers,
        heads=theirs.num_attention_heads,
        hidden=theirs.intermediate_size,
        activation=from_theirs(theirs.hidden_act),
        relative=tuple(theirs.parts),  # pyright: ignore[reportArgumentType]
        reach=reach,
        buckets=max(theirs.position_buckets, 0),
        shared=theirs.share_att_key,
        relative_norm=theirs.norms,
        convolution=convolution_of(theirs),
        dropout=theirs.hidden_dropout_prob,
        eps=theirs.layer_norm_eps,
        pooler=from_theirs(theirs.pooler_hidden_act),
        tied=theirs.tie_word_embeddings or head != "words",
        **encoders.class_fields(theirs, head),
    )
    plain = encoders.plain_head(head)
    return Deberta(replace(config, **plain, pooler=None if "pooling" in plain else config.pooler))


def convolution_of(theirs: Theirs) -> Convolution | None:
    if theirs.conv_kernel_size <= 0:
        return None
    activation = from_theirs(theirs.conv_act)
    return Convolution(kernel=theirs.conv_kernel_size, groups=theirs.conv_groups, activation=activation)


def settle(config: Theirs, tensors: Tensors) -> tuple[Any, Tensors]:
    """The newer head for words under the names of the older one; it is always tied."""
    if config.legacy:
        return WORDS.settle(config, tensors)
    renamed = {newer(name): tensor for name, tensor in tensors.items() if not name.startswith("cls.")}
    return config.model_copy(update={"tie_word_embeddings": True}), renamed


def newer(name: str) -> str:
    before = next((one for one in NEWER if name == one or name.startswith(f"{one}.")), None)
    return name if before is None else NEWER[before] + name.removeprefix(before)


def found_head(named: str, folder: Path, names: Collection[str]) -> str:
    """A bare model may have been saved with sentence-transformers."""
    return sentence_head(folder) or named if named == "states" else named


def rules(model: Deberta) -> list[Rule]:
    c = model.config
    found: list[Rule] = [
        Same("tokens.table.weight", f"{PREFIX}embeddings.word_embeddings.weight"),
        *layer("norm", f"{PREFIX}embeddings.LayerNorm"),
    ]
    if c.absolute:
        found += layer("places.table", f"{PREFIX}embeddings.position_embeddings", "weight")
    if c.segments:
        found += layer("segments.table", f"{PREFIX}embeddings.token_type_embeddings", "weight")
    if isinstance(model.widen, nn.Linear):
        found += layer("widen", f"{PREFIX}embeddings.embed_proj", "weight")
    if c.relative:
        found += layer("distances.table", f"{PREFIX}encoder.rel_embeddings", "weight")
        found += layer("distances.norm", f"{PREFIX}encoder.LayerNorm") if c.relative_norm else []
    if c.convolution is not None:
        found += layer("beside.convolve", f"{PREFIX}encoder.conv.conv")
        found += layer("beside.norm", f"{PREFIX}encoder.conv.LayerNorm")
    for i in range(c.depth):
        found += block_rules(c, f"blocks.{i}", f"{PREFIX}encoder.layer.{i}")
    return [*found, *head_rules(model)]


def block_rules(c: DebertaConfig, ours: str, theirs: str) -> list[Rule]:
    names = {
        "attend.to_query": "attention.self.query_proj",
        "attend.to_key": "attention.self.key_proj",
        "attend.to_value": "attention.self.value_proj",
        "attend.to_out": "attention.output.dense",
        "around_attend.norm": "attention.output.LayerNorm",
        "feed.to_hidden": "intermediate.dense",
        "feed.to_out": "output.dense",
        "around_feed.norm": "output.LayerNorm",
    }
    if not c.shared and "c2p" in c.relative:
        names["attend.to_position_key"] = "attention.self.pos_key_proj"
    if not c.shared and "p2c" in c.relative:
        names["attend.to_position_query"] = "attention.self.pos_query_proj"
    return [rule for our, their in names.items() for rule in layer(f"{ours}.{our}", f"{theirs}.{their}")]


def head_rules(model: Deberta) -> list[Rule]:
    found: list[Rule] = []
    if pool := encoders.place(model, DensePool):
        found += layer(f"{pool}.to_pooled", "pooler.dense")
    if words := encoders.place(model, WordHead):
        found += layer(f"{words}.to_hidden", "cls.predictions.transform.dense")
        found += layer(f"{words}.norm", "cls.predictions.transform.LayerNorm")
        found += WORDS.rules(words, tied=model.config.tied)
    if classes := encoders.place(model, ClassHead, TagHead):
        found += layer(f"{classes}.to_classes", "classifier")
    if ends := encoders.place(model, SpanHead):
        found += layer(f"{ends}.to_ends", "qa_outputs")
    return found


def ignored(model: Deberta) -> tuple[str, ...]:
    """Published files hold heads of pretraining, and absolute positions that are not added to the embedding."""
    aside = (r"(deberta\.)?embeddings\.position_ids", r"(deberta\.)?embeddings\.\w+\._weight", r"mask_predictions\..*")
    aside += () if model.config.absolute else (r"(deberta\.)?embeddings\.position_embeddings\.weight",)
    return aside if model.config.head == "words" else (*aside, r"(lm_predictions|cls)\..*")


def describe(model: Deberta) -> dict[str, Any]:
    c = model.config
    convolution = {}
    if c.convolution is not None:
        convolution = {
            "conv_kernel_size": c.convolution.kernel,
            "conv_groups": c.convolution.groups,
            "conv_act": to_theirs(c.convolution.activation),
        }
    return {
        "architectures": [encoders.architecture(model, ARCHITECTURES)],
        "vocab_size": c.vocab,
        "max_position_embeddings": c.context,
        "position_biased_input": c.absolute,
        "type_vocab_size": c.segments,
        "hidden_size": c.dim,
        "embedding_size": c.dim if c.embedding is None else c.embedding,
        "num_hidden_layers": c.depth,
        "num_attention_heads": c.heads,
        "intermediate_size": 4 * c.dim if c.hidden is None else c.hidden,
        "hidden_act": to_theirs(c.activation),
        "relative_attention": bool(c.relative),
        "pos_att_type": list(c.relative),
        "max_relative_positions": c.reach,
        "position_buckets": c.buckets or -1,
        "share_att_key": c.shared,
        "norm_rel_ebd": "layer_norm" if c.relative_norm and c.relative else "none",
        **convolution,
        "hidden_dropout_prob": c.dropout,
        "attention_probs_dropout_prob": c.dropout,
        "layer_norm_eps": c.eps,
        "pooler_hidden_act": to_theirs(c.pooler or "gelu"),
        "pooler_hidden_size": c.dim,
        "legacy": True,
        **encoders.tie(c),
        **encoders.label_names(c),
    }


def writes(model: nn.Module) -> bool:
    if not isinstance(model, Deberta):
        return False
    c = model.config
    if c.head in ("pooled", "embedding"):
        return c.pooler is None
    return c.head not in ("classes", "choices") or (c.pooling == "first" and c.pooler is not None)


ASIDE = "attention_probs_dropout_prob cls_dropout pooler_dropout"
FAMILY = Family(
    name="DeBERTa-v2",
    model_type="deberta-v2",
    schema=Theirs,
    harmless=frozenset(ASIDE.split()),
    architectures=ARCHITECTURES,
    prefix=PREFIX,
    head=found_head,
    settle=settle,
    build=build,
    rules=rules,
    ignored=ignored,
    writes=writes,
    bare=encoders.bare,
    describe=describe,
    beside=encoders.beside,
)
