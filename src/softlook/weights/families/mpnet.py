"""MPNet: BERT's encoder without segments, with a bias by distance for all layers, and RoBERTa's positions and heads."""

from dataclasses import replace
from typing import Any

from pydantic import PositiveInt
from torch import nn

from softlook.base.errors import WeightsError
from softlook.models.bert import Bert
from softlook.weights.families import bert, encoders, roberta
from softlook.weights.family import Family
from softlook.weights.renaming import Rule, Same, layer

ARCHITECTURES = {f"MPNet{name}": head for name, head in roberta.CLASSES.items()}
PREFIX = "mpnet."
WORDS = roberta.word_names(PREFIX)
OFFSET = 2
"""Rows of the position table before the first token's: theirs is fixed, whatever the padding's id is."""
BUCKETS = 32
"""Theirs computes with this number, whatever the config says."""


class MPNet(bert.BERT):
    """Hugging Face's MPNetConfig, as far as it changes the numbers."""

    vocab_size: PositiveInt = 30527
    relative_attention_num_buckets: PositiveInt = BUCKETS


def build(theirs: MPNet, head: str) -> Bert:
    if theirs.relative_attention_num_buckets != BUCKETS:
        raise WeightsError(
            f"relative_attention_num_buckets should be {BUCKETS}, which Hugging Face's code computes with; "
            f"{theirs.relative_attention_num_buckets} came"
        )
    encoders.check_gelu(theirs.hidden_act, head, "MPNet")
    config = bert.encoder_config(theirs, head)
    if config.context <= OFFSET:
        raise WeightsError(f"{config.context} positions leave none behind the padding's, {OFFSET - 1}")
    return Bert(replace(config, segments=0, buckets=BUCKETS, offset=OFFSET, context=config.context - OFFSET))


def rules(model: Bert) -> list[Rule]:
    found: list[Rule] = [
        Same("tokens.table.weight", f"{PREFIX}embeddings.word_embeddings.weight"),
        Same("places.table.weight", f"{PREFIX}embeddings.position_embeddings.weight"),
        Same("distances.table.weight", f"{PREFIX}encoder.relative_attention_bias.weight"),
        *layer("norm", f"{PREFIX}embeddings.LayerNorm"),
    ]
    names = {
        "attend.to_query": "attention.attn.q",
        "attend.to_key": "attention.attn.k",
        "attend.to_value": "attention.attn.v",
        "attend.to_out": "attention.attn.o",
        "around_attend.norm": "attention.LayerNorm",
        "feed.to_hidden": "intermediate.dense",
        "feed.to_out": "output.dense",
        "around_feed.norm": "output.LayerNorm",
    }
    for i in range(model.config.depth):
        for ours, theirs in names.items():
            found += layer(f"blocks.{i}.{ours}", f"{PREFIX}encoder.layer.{i}.{theirs}")
    return [*found, *roberta.head_rules(model, PREFIX)]


def describe(model: Bert) -> dict[str, Any]:
    c = model.config
    described = bert.encoder_description(model)
    described.pop("type_vocab_size")
    return {
        "architectures": [encoders.architecture(model, ARCHITECTURES)],
        **described,
        "max_position_embeddings": c.context + c.offset,
        "relative_attention_num_buckets": c.buckets,
    }


def writes(model: nn.Module) -> bool:
    if not isinstance(model, Bert):
        return False
    c = model.config
    mine = (c.buckets, c.offset, c.segments) == (BUCKETS, OFFSET, 0)
    return mine and encoders.plain(replace(c, buckets=0)) and roberta.has_head(c)


FAMILY = Family(
    name="MPNet",
    model_type="mpnet",
    schema=MPNet,
    harmless=frozenset({"attention_probs_dropout_prob", "classifier_dropout"}),
    architectures=ARCHITECTURES,
    prefix=PREFIX,
    head=bert.found_head,
    settle=WORDS.settle,
    build=build,
    rules=rules,
    ignored=roberta.ignored,
    writes=writes,
    bare=encoders.bare,
    describe=describe,
    beside=encoders.beside,
)
