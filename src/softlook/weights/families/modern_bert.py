"""ModernBERT with each of its heads."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt
from torch import nn

from softlook.base.errors import WeightsError
from softlook.models.modern_bert import ModernBert, ModernBertConfig, PredictionHead
from softlook.weights.families import encoders
from softlook.weights.families.activations import from_theirs, to_theirs
from softlook.weights.families.rope import Rope
from softlook.weights.family import Family
from softlook.weights.renaming import Rule, Same, Stacked, layer
from softlook.weights.sentence import Sentence, sentence_files, sentence_head

ARCHITECTURES = {
    "ModernBertModel": "states",
    "ModernBertForMaskedLM": "words",
    "ModernBertForSequenceClassification": "classes",
    "ModernBertForMultipleChoice": "choices",
    "ModernBertForTokenClassification": "tags",
    "ModernBertForQuestionAnswering": "spans",
}
PREFIX = "model."
WORDS = encoders.WordNames(table="model.embeddings.tok_embeddings.weight", weight="decoder.weight", bias="decoder.bias")
POOLS: dict[str, Literal["first", "mean"]] = {"cls": "first", "mean": "mean"}
Kind = Literal["full_attention", "sliding_attention"]


class Theirs(encoders.EncoderConfig):
    """Hugging Face's ModernBertConfig, as far as it changes the numbers."""

    vocab_size: PositiveInt = 50368
    hidden_size: PositiveInt = 768
    intermediate_size: PositiveInt = 1152
    num_hidden_layers: PositiveInt = 22
    num_attention_heads: PositiveInt = 12
    head_dim: PositiveInt | None = None
    hidden_activation: str = "gelu"
    max_position_embeddings: PositiveInt = 8192
    norm_eps: PositiveFloat = 1e-5
    norm_bias: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    attention_dropout: NonNegativeFloat = 0.0
    layer_types: list[Kind] | None = None
    global_attn_every_n_layers: PositiveInt = 3
    local_attention: PositiveInt = 128
    rope_parameters: dict[Kind, Rope | None] | None = None
    rope_scaling: Rope | None = None
    global_rope_theta: PositiveFloat = 160_000.0
    local_rope_theta: PositiveFloat = 10_000.0
    decoder_bias: bool = True
    classifier_pooling: Literal["cls", "mean"] = "cls"
    classifier_bias: bool = False
    classifier_activation: str = "gelu"


def build(theirs: Theirs, head: str) -> ModernBert:
    kinds = theirs.layer_types or [
        "sliding_attention" if number % theirs.global_attn_every_n_layers else "full_attention"
        for number in range(theirs.num_hidden_layers)
    ]
    if len(kinds) != theirs.num_hidden_layers:
        raise WeightsError(f"layer_types has {len(kinds)} entries; num_hidden_layers is {theirs.num_hidden_layers}")
    if theirs.head_dim not in (None, theirs.hidden_size // theirs.num_attention_heads):
        raise WeightsError(
            f"head_dim should be hidden_size / num_attention_heads = {theirs.hidden_size // theirs.num_attention_heads}"
            f"; {theirs.head_dim} came"
        )
    config = ModernBertConfig(
        vocab=theirs.vocab_size,
        context=theirs.max_position_embeddings,
        dim=theirs.hidden_size,
        depth=theirs.num_hidden_layers,
        heads=theirs.num_attention_heads,
        hidden=theirs.intermediate_size,
        activation=from_theirs(theirs.hidden_activation),
        window=theirs.local_attention // 2,
        local=tuple(number for number, kind in enumerate(kinds) if kind == "sliding_attention"),
        base=base_of(theirs, "full_attention", theirs.global_rope_theta),
        local_base=base_of(theirs, "sliding_attention", theirs.local_rope_theta),
        eps=theirs.norm_eps,
        norm_biases=theirs.norm_bias,
        attention_biases=theirs.attention_bias,
        feed_biases=theirs.mlp_bias,
        dropout=theirs.attention_dropout,
        pooling=POOLS[theirs.classifier_pooling],
        head_activation=from_theirs(theirs.classifier_activation),
        head_bias=theirs.classifier_bias,
        word_bias=theirs.decoder_bias,
        tied=theirs.tie_word_embeddings or head != "words",
        **encoders.class_fields(theirs, head),
    )
    return ModernBert(replace(config, **encoders.plain_head(head)))


def base_of(theirs: Theirs, kind: Kind, told: float) -> float:
    """The base of the rotary positions in layers of this kind; positions that are stretched are refused."""
    rope = (theirs.rope_parameters or {}).get(kind) or Rope()
    for one in (rope, theirs.rope_scaling or Rope()):
        if (one.rope_type or one.type or "default") != "default" or one.partial_rotary_factor not in (None, 1):
            raise WeightsError(
                f"the rotary positions of {kind} layers should be plain (rope_type 'default'); softlook's ModernBert "
                f"does not stretch them, and {one.rope_type or one.type!r} came"
            )
    scaled = None if theirs.rope_scaling is None else theirs.rope_scaling.rope_theta
    return scaled or rope.rope_theta or told


def found_head(named: str, folder: Path, names: Collection[str]) -> str:
    """A bare model may have been saved with sentence-transformers."""
    return sentence_head(folder) or named if named == "states" else named


def kinds_of(biases: bool) -> tuple[str, ...]:
    return ("weight", "bias") if biases else ("weight",)


def rules(model: ModernBert) -> list[Rule]:
    c = model.config
    norm = kinds_of(c.norm_biases)
    found: list[Rule] = [
        Same("tokens.table.weight", f"{PREFIX}embeddings.tok_embeddings.weight"),
        *layer("entry_norm", f"{PREFIX}embeddings.norm", *norm),
        *layer("norm", f"{PREFIX}final_norm", *norm),
    ]
    for i in range(c.depth):
        ours, theirs = f"blocks.{i}", f"{PREFIX}layers.{i}"
        if i:
            found += layer(f"{ours}.around_attend.norm", f"{theirs}.attn_norm", *norm)
        found += layer(f"{ours}.around_feed.norm", f"{theirs}.mlp_norm", *norm)
        for kind in kinds_of(c.attention_biases):
            three = tuple(f"{ours}.attend.to_{part}.{kind}" for part in ("query", "key", "value"))
            found += [Stacked(three, f"{theirs}.attn.Wqkv.{kind}")]
            found += layer(f"{ours}.attend.to_out", f"{theirs}.attn.Wo", kind)
        for kind in kinds_of(c.feed_biases):
            two = tuple(f"{ours}.feed.{part}.{kind}" for part in ("to_gate", "to_hidden"))
            found += [Stacked(two, f"{theirs}.mlp.Wi.{kind}")]
            found += layer(f"{ours}.feed.to_out", f"{theirs}.mlp.Wo", kind)
    return [*found, *head_rules(model)]


def head_rules(model: ModernBert) -> list[Rule]:
    c = model.config
    if not isinstance(model.head, PredictionHead):
        return []
    found = layer("head.to_hidden", "head.dense", *kinds_of(c.head_bias))
    found += layer("head.norm", "head.norm", *kinds_of(c.norm_biases))
    if c.head != "words":
        return [*found, *layer("head.to_classes", "classifier")]
    kinds = (() if c.tied else ("weight",)) + (("bias",) if c.word_bias else ())
    return [*found, *(layer("head.to_classes", "decoder", *kinds) if kinds else ())]


def describe(model: ModernBert) -> dict[str, Any]:
    c = model.config
    bases = {"full_attention": c.base, "sliding_attention": c.local_base}
    return {
        "architectures": [encoders.architecture(model, ARCHITECTURES)],
        "vocab_size": c.vocab,
        "max_position_embeddings": c.context,
        "hidden_size": c.dim,
        "num_hidden_layers": c.depth,
        "num_attention_heads": c.heads,
        "intermediate_size": c.hidden,
        "hidden_activation": to_theirs(c.activation),
        "local_attention": 2 * c.window,
        "layer_types": ["sliding_attention" if i in model.local else "full_attention" for i in range(c.depth)],
        "rope_parameters": {kind: {"rope_type": "default", "rope_theta": base} for kind, base in bases.items()},
        "norm_eps": c.eps,
        "norm_bias": c.norm_biases,
        "attention_bias": c.attention_biases,
        "mlp_bias": c.feed_biases,
        **dict.fromkeys(("attention_dropout", "embedding_dropout", "mlp_dropout", "classifier_dropout"), c.dropout),
        "classifier_pooling": "cls" if c.pooling == "first" else "mean",
        "classifier_activation": to_theirs(c.head_activation),
        "classifier_bias": c.head_bias,
        "decoder_bias": c.word_bias,
        "tie_word_embeddings": c.tied,
        # Their defaults are ids of the published vocabulary, which may lie beyond this one's.
        **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")),
        **encoders.label_names(c),
    }


def writes(model: nn.Module) -> bool:
    return isinstance(model, ModernBert)


def beside(model: ModernBert) -> dict[str, Any]:
    """What makes the folder one of sentence-transformers', where the model gives vectors of sentences."""
    c = model.config
    if c.head not in ("pooled", "embedding"):
        return {}
    return sentence_files(Sentence(c.pooling, length_one=c.head == "embedding"), c.dim, c.context)


ASIDE = """
    classifier_dropout deterministic_flash_attn embedding_dropout initializer_cutoff_factor layer_norm_eps mlp_dropout
    position_embedding_type reference_compile repad_logits_with_grad sparse_pred_ignore_index sparse_prediction
"""
FAMILY = Family(
    name="ModernBERT",
    model_type="modernbert",
    schema=Theirs,
    harmless=frozenset(ASIDE.split()),
    architectures=ARCHITECTURES,
    prefix=PREFIX,
    head=found_head,
    settle=WORDS.settle,
    build=build,
    rules=rules,
    writes=writes,
    bare=encoders.bare,
    describe=describe,
    beside=beside,
)
