"""OPT: GPT with ReLU, two unused positions, and in one size norms behind the layers and narrow words."""

from typing import Any, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import nn

from softlook.base.errors import WeightsError
from softlook.models.gpt import GPT, GPTConfig
from softlook.weights.families.activations import from_theirs, to_theirs
from softlook.weights.families.gpt2 import GPTLike, describe_head, head_of, head_rules, is_gpt, unused_head
from softlook.weights.families.tables import tied_as_in_the_file
from softlook.weights.family import Family
from softlook.weights.renaming import Rule, Same, layer

ARCHITECTURES = {"OPTForCausalLM": "words", "OPTModel": "states", "OPTForSequenceClassification": "classes"}
OFFSET, EPS = 2, 1e-5
"""Rows of the table of positions that nobody uses; what is added to variances. Their config says neither."""


class OPT(GPTLike):
    """Hugging Face's OPTConfig, as far as it changes the numbers."""

    vocab_size: PositiveInt = 50272
    hidden_size: PositiveInt = 768
    num_hidden_layers: PositiveInt = 12
    ffn_dim: PositiveInt = 3072
    max_position_embeddings: PositiveInt = 2048
    do_layer_norm_before: bool = True
    without_final_norm: bool = Field(default=False, alias="_remove_final_layer_norm")
    word_embed_proj_dim: PositiveInt | None = None
    dropout: NonNegativeFloat = 0.1
    num_attention_heads: PositiveInt = 12
    activation_function: str = "relu"
    enable_bias: Literal[True] = True
    layer_norm_elementwise_affine: Literal[True] = True
    pad_token_id: int | None = 1
    tie_word_embeddings: bool = True
    is_causal: Literal[True] = True


def build(theirs: OPT, head: str) -> GPT:
    if theirs.do_layer_norm_before and theirs.without_final_norm:
        raise WeightsError("this OPT has no norm behind its last layer (_remove_final_layer_norm); softlook's GPT has")
    return GPT(
        GPTConfig(
            vocab=theirs.vocab_size,
            context=theirs.max_position_embeddings,
            dim=theirs.hidden_size,
            depth=theirs.num_hidden_layers,
            heads=theirs.num_attention_heads,
            hidden=theirs.ffn_dim,
            activation=from_theirs(theirs.activation_function),
            dropout=theirs.dropout,
            eps=EPS,
            tied=theirs.tie_word_embeddings,
            position_offset=OFFSET,
            norm="pre" if theirs.do_layer_norm_before else "post",
            embedding_width=theirs.word_embed_proj_dim,
            **head_of(theirs, head),
        )
    )


def rules(model: GPT) -> list[Rule]:
    c = model.config
    found: list[Rule] = [
        Same("tokens.table.weight", "model.decoder.embed_tokens.weight"),
        Same("places.table.weight", "model.decoder.embed_positions.weight"),
        *head_rules(model),
    ]
    if c.norm == "pre":
        found += layer("norm", "model.decoder.final_layer_norm")
    if c.embedding_width not in (None, c.dim):
        found += layer("project_in", "model.decoder.project_in", "weight")
        found += layer("project_out", "model.decoder.project_out", "weight")
    for i in range(c.depth):
        ours, theirs = f"blocks.{i}", f"model.decoder.layers.{i}"
        for our_name, their_name in (("query", "q"), ("key", "k"), ("value", "v"), ("out", "out")):
            found += layer(f"{ours}.attend.to_{our_name}", f"{theirs}.self_attn.{their_name}_proj")
        found += [
            *layer(f"{ours}.around_attend.norm", f"{theirs}.self_attn_layer_norm"),
            *layer(f"{ours}.around_feed.norm", f"{theirs}.final_layer_norm"),
            *layer(f"{ours}.feed.to_hidden", f"{theirs}.fc1"),
            *layer(f"{ours}.feed.to_out", f"{theirs}.fc2"),
        ]
    return found


def describe(model: GPT) -> dict[str, Any]:
    c = model.config
    return {
        "pad_token_id": None,
        **describe_head(model, ARCHITECTURES),
        "vocab_size": c.vocab,
        "max_position_embeddings": c.context,
        "hidden_size": c.dim,
        "num_hidden_layers": c.depth,
        "num_attention_heads": c.heads,
        "ffn_dim": 4 * c.dim if c.hidden is None else c.hidden,
        "word_embed_proj_dim": c.dim if c.embedding_width is None else c.embedding_width,
        "activation_function": to_theirs(c.activation),
        "dropout": c.dropout,
        "attention_dropout": c.dropout,
        "do_layer_norm_before": c.norm == "pre",
    }


def writes(model: nn.Module) -> bool:
    return is_gpt(model, "embedding_width", "norm", position_offset=OFFSET) and model.config.eps == EPS


def bare(model: GPT) -> bool:
    return model.config.head == "states"


ASIDE = "_remove_final_layer_norm activation_dropout attention_dropout init_std layerdrop"
FAMILY = Family(
    name="OPT",
    model_type="opt",
    schema=OPT,
    harmless=frozenset(ASIDE.split()),
    architectures=ARCHITECTURES,
    prefix="model.",
    settle=tied_as_in_the_file("model.decoder.embed_tokens.weight", "lm_head.weight"),
    build=build,
    rules=rules,
    ignored=unused_head,
    writes=writes,
    bare=bare,
    describe=describe,
)
