"""Bloom: GPT with ALiBi in place of positions, and a norm behind the embedding."""

from typing import Any, Literal

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt
from torch import nn

from softlook.base.errors import WeightsError
from softlook.models.gpt import GPT, GPTConfig
from softlook.weights.families.gpt2 import GPTLike, describe_head, head_of, head_rules, is_gpt, unused_head
from softlook.weights.families.gpt_neox import layer_rules
from softlook.weights.families.tables import tied_as_in_the_file
from softlook.weights.family import Family
from softlook.weights.renaming import Rule, Same, layer

ARCHITECTURES = {
    "BloomForCausalLM": "words",
    "BloomModel": "states",
    "BloomForSequenceClassification": "classes",
}


class Bloom(GPTLike):
    """Hugging Face's BloomConfig, as far as it changes the numbers. Some fields have two names."""

    vocab_size: PositiveInt = 250880
    hidden_size: PositiveInt | None = None
    n_embed: PositiveInt | None = None
    n_layer: PositiveInt | None = None
    num_hidden_layers: PositiveInt | None = None
    n_head: PositiveInt | None = None
    num_attention_heads: PositiveInt | None = None
    seq_length: PositiveInt = 2048
    layer_norm_epsilon: PositiveFloat = 1e-5
    hidden_dropout: NonNegativeFloat = 0.0
    apply_residual_connection_post_layernorm: Literal[False] = False
    pretraining_tp: PositiveInt = 1
    slow_but_exact: bool = False
    tie_word_embeddings: bool = True
    is_causal: Literal[True] = True


def build(theirs: Bloom, head: str) -> GPT:
    if theirs.slow_but_exact and theirs.pretraining_tp > 1:
        raise WeightsError("slow_but_exact with pretraining_tp > 1 leaves out biases; softlook's GPT has them")
    return GPT(
        GPTConfig(
            vocab=theirs.vocab_size,
            context=theirs.seq_length,
            dim=_size("n_embed", theirs.n_embed, "hidden_size", theirs.hidden_size, otherwise=64),
            depth=_size("n_layer", theirs.n_layer, "num_hidden_layers", theirs.num_hidden_layers, otherwise=2),
            heads=_size("n_head", theirs.n_head, "num_attention_heads", theirs.num_attention_heads, otherwise=8),
            dropout=theirs.hidden_dropout,
            eps=theirs.layer_norm_epsilon,
            tied=theirs.tie_word_embeddings,
            positions="alibi",
            embedding_norm=True,
            **head_of(theirs, head),
        )
    )


def _size(name: str, one: int | None, other_name: str, other: int | None, *, otherwise: int) -> int:
    """A size that is told under one name, under another, or not at all."""
    if one is not None and other is not None and one != other:
        raise WeightsError(f"{name} and {other_name} are two names of one size; {one} and {other} came")
    return next((size for size in (one, other) if size is not None), otherwise)


def rules(model: GPT) -> list[Rule]:
    found: list[Rule] = [
        Same("tokens.table.weight", "transformer.word_embeddings.weight"),
        *layer("embedding_norm", "transformer.word_embeddings_layernorm"),
        *layer("norm", "transformer.ln_f"),
        *head_rules(model),
    ]
    for i in range(model.config.depth):
        found += layer_rules(f"blocks.{i}", f"transformer.h.{i}", "self_attention", model.config.heads)
    return found


def describe(model: GPT) -> dict[str, Any]:
    c = model.config
    return {
        **describe_head(model, ARCHITECTURES),
        "vocab_size": c.vocab,
        "seq_length": c.context,
        "hidden_size": c.dim,
        "n_layer": c.depth,
        "n_head": c.heads,
        "hidden_dropout": c.dropout,
        "attention_dropout": c.dropout,
        "layer_norm_epsilon": c.eps,
    }


def writes(model: nn.Module) -> bool:
    if not is_gpt(model, positions="alibi", embedding_norm=True):
        return False
    return model.config.activation == "gelu_tanh" and model.config.hidden in (None, 4 * model.config.dim)


def bare(model: GPT) -> bool:
    return model.config.head == "states"


ASIDE = """
    attention_dropout attention_softmax_in_fp32 bias_dropout_fusion masked_softmax_fusion offset_alibi
    skip_bias_add skip_bias_add_qkv
"""
FAMILY = Family(
    name="Bloom",
    model_type="bloom",
    schema=Bloom,
    harmless=frozenset(ASIDE.split()),
    architectures=ARCHITECTURES,
    prefix="transformer.",
    settle=tied_as_in_the_file("transformer.word_embeddings.weight", "lm_head.weight"),
    build=build,
    rules=rules,
    ignored=unused_head,
    writes=writes,
    bare=bare,
    describe=describe,
)
