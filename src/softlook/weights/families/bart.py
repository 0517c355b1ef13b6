"""BART. What it shares with Marian, mBART, Pegasus and M2M-100 is here, and used there."""

import re
from typing import Any, Literal

import torch
from pydantic import NonNegativeFloat, PositiveInt
from torch import nn

from softlook.base.errors import WeightsError
from softlook.models.transformer import Transformer, TransformerConfig
from softlook.ops.positions.tables import sinusoidal
from softlook.weights.families.activations import from_theirs, to_theirs
from softlook.weights.families.tables import Tables, filled, same
from softlook.weights.family import Family
from softlook.weights.renaming import Copy, Row, Rule, Same, Tensors, layer
from softlook.weights.schema import Closed

PREFIX = "model."
TABLES = Tables(
    "model.shared.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"
)
BIAS = "final_logits_bias"
PLACES = r"(model\.)?(encoder|decoder)\.embed_positions\.weights?"
"""Positions that are computed, and may lie in a file all the same."""
ASIDE = """
    activation_dropout attention_dropout classif_dropout classifier_dropout decoder_layerdrop encoder_layerdrop
    extra_pos_embeddings force_bos_token_to_be_generated init_std
"""
HARMLESS = frozenset(ASIDE.split())


class BartLike(Closed):
    """The fields that BART and its relatives share."""

    vocab_size: PositiveInt
    max_position_embeddings: PositiveInt = 1024
    d_model: PositiveInt = 1024
    encoder_layers: PositiveInt = 12
    decoder_layers: PositiveInt = 12
    num_hidden_layers: PositiveInt | None = None
    encoder_attention_heads: PositiveInt = 16
    decoder_attention_heads: PositiveInt = 16
    encoder_ffn_dim: PositiveInt = 4096
    decoder_ffn_dim: PositiveInt = 4096
    activation_function: str = "gelu"
    dropout: NonNegativeFloat = 0.1
    scale_embedding: bool = False
    tie_word_embeddings: bool = True
    share_encoder_decoder_embeddings: bool = True
    tie_encoder_decoder: bool = False
    is_causal: Literal[True] = True
    normalize_before: bool | None = None
    add_final_layer_norm: bool | None = None
    add_bias_logits: bool = False


class Bart(BartLike):
    """Hugging Face's BartConfig, as far as it changes the numbers."""

    vocab_size: PositiveInt = 50265
    normalize_embedding: bool = True
    static_position_embeddings: bool = False


def check(theirs: BartLike, norm: str) -> None:
    """What softlook's Transformer cannot express is an error, not a guess. `norm` says where Hugging Face's code has
    the norms, whatever the config says."""
    pairs = {
        "heads": (theirs.encoder_attention_heads, theirs.decoder_attention_heads),
        "as hidden width": (theirs.encoder_ffn_dim, theirs.decoder_ffn_dim),
    }
    for what, (encoder, decoder) in pairs.items():
        if encoder != decoder:
            raise WeightsError(
                f"this model has {encoder} {what} in its encoder and {decoder} in its decoder; "
                "softlook's Transformer has one number for both"
            )
    if theirs.num_hidden_layers not in (None, theirs.encoder_layers):
        raise WeightsError(
            f"encoder_layers says {theirs.encoder_layers} and num_hidden_layers, which is the same, "
            f"{theirs.num_hidden_layers}"
        )
    before = norm == "pre"
    fixed = {"tie_encoder_decoder": False, "add_bias_logits": False}
    for field, value in (fixed | {"normalize_before": before, "add_final_layer_norm": before}).items():
        told = getattr(theirs, field)
        if told not in (None, value):
            raise WeightsError(
                f"{field} is {str(told).lower()}, and Hugging Face's own code for this architecture does not have it so"
            )


def config_of(theirs: BartLike, **changes: Any) -> TransformerConfig:
    """What all have in common, in our words."""
    check(theirs, changes.get("norm", "post"))
    return TransformerConfig(
        vocab=theirs.vocab_size,
        context=theirs.max_position_embeddings,
        dim=theirs.d_model,
        depth=theirs.encoder_layers,
        decoder_depth=theirs.decoder_layers,
        heads=theirs.encoder_attention_heads,
        hidden=theirs.encoder_ffn_dim,
        activation=from_theirs(theirs.activation_function),
        dropout=theirs.dropout,
        scaled=theirs.scale_embedding,
        tied=theirs.tie_word_embeddings,
        **{"head_bias": True, **changes},
    )


def build(theirs: Bart, head: str) -> Transformer:
    if not theirs.normalize_embedding or theirs.static_position_embeddings:
        raise WeightsError(
            "this BART has no norm behind its embedding, or no learned positions; Hugging Face's has both"
        )
    target = None if theirs.share_encoder_decoder_embeddings else theirs.vocab_size
    return Transformer(config_of(theirs, target_vocab=target, places="learned", offset=2, embedding_norm=True))


def settle_like(config: BartLike, tensors: Tensors) -> tuple[Any, Tensors, Tables]:
    """Which tables are one by the file itself, each of them under its name; and zeros for the words' own scores,
    which Hugging Face's code also takes where a file has none."""
    bare = not any(name.startswith(PREFIX) for name in tensors)
    tables = TABLES.without(PREFIX) if bare else TABLES
    if config.tie_word_embeddings:
        tensors = filled(tensors, tables.shared, tables.target, tables.head)
    if config.share_encoder_decoder_embeddings:
        tensors = filled(tensors, tables.shared, tables.source, tables.target)
    one, tied = same(tensors, tables.source, tables.target), same(tensors, tables.target, tables.head)
    if tables.target in tensors:
        tensors = {BIAS: tensors[tables.target].new_zeros(1, *tensors[tables.target].shape[:1])} | tensors
    fields = {"share_encoder_decoder_embeddings": one, "tie_word_embeddings": tied}
    return config.model_copy(update=fields), tensors, tables


def settle(config: BartLike, tensors: Tensors) -> tuple[Any, Tensors]:
    config, tensors, tables = settle_like(config, tensors)
    if config.share_encoder_decoder_embeddings and config.tie_word_embeddings:
        return config, whole(tensors, tables)
    return config, filled(without(tensors, tables.shared), tables.source, tables.shared)


def whole(tensors: Tensors, tables: Tables) -> Tensors:
    """One table for everything, under its own name; what a file holds there beside those that are used is not used."""
    rest = without(tensors, tables.source, tables.target, tables.head)
    return rest | {tables.shared: tensors[tables.source]}


def without(tensors: Tensors, *names: str) -> Tensors:
    return {name: tensor for name, tensor in tensors.items() if name not in names}


def table_rules(model: Transformer) -> dict[str, Rule]:
    """Their name -> the rule, for each table that is read or written."""
    source = "encoder.entrance.tokens.table.weight"
    target = source if model.config.target_vocab is None else "decoder.entrance.tokens.table.weight"
    head = target if model.config.tied else "head.weight"
    if source == head:
        return {TABLES.shared: Same(source, TABLES.shared)}
    ours = {TABLES.shared: source, TABLES.source: source, TABLES.target: target, TABLES.head: head}
    return {theirs: Copy(name, theirs) for theirs, name in ours.items()}


def rules_like(model: Transformer) -> list[Rule]:
    """What all have in common: the blocks, the norms that close each stack, and the words' own scores."""
    found: list[Rule] = [Row("head.bias", BIAS)] if model.config.head_bias else []
    for stack, blocks in (("encoder", model.encoder.blocks), ("decoder", model.decoder.blocks)):
        if model.config.norm == "pre":
            found += layer(f"{stack}.norm", f"{PREFIX}{stack}.layer_norm")
        for i in range(len(blocks)):
            ours, theirs = f"{stack}.blocks.{i}", f"{PREFIX}{stack}.layers.{i}"
            found += [
                *attention_rules(f"{ours}.attend", f"{theirs}.self_attn"),
                *layer(f"{ours}.around_attend.norm", f"{theirs}.self_attn_layer_norm"),
                *layer(f"{ours}.feed.to_hidden", f"{theirs}.fc1"),
                *layer(f"{ours}.feed.to_out", f"{theirs}.fc2"),
                *layer(f"{ours}.around_feed.norm", f"{theirs}.final_layer_norm"),
            ]
            if stack == "decoder":
                found += attention_rules(f"{ours}.cross", f"{theirs}.encoder_attn")
                found += layer(f"{ours}.around_cross.norm", f"{theirs}.encoder_attn_layer_norm")
    return found


def attention_rules(ours: str, theirs: str) -> list[Rule]:
    names = {"to_query": "q_proj", "to_key": "k_proj", "to_value": "v_proj", "to_out": "out_proj"}
    return [rule for our, their in names.items() for rule in layer(f"{ours}.{our}", f"{theirs}.{their}")]


def rules(model: Transformer) -> list[Rule]:
    return [*table_rules(model).values(), *rules_like(model), *place_rules()]


def place_rules() -> list[Rule]:
    """Learned positions, and the norm behind them."""
    found: list[Rule] = []
    for stack in ("encoder", "decoder"):
        found += layer(f"{stack}.entrance.places.table", f"{PREFIX}{stack}.embed_positions", "weight")
        found += layer(f"{stack}.entrance.norm", f"{PREFIX}{stack}.layernorm_embedding")
    return found


def describe_like(model: Transformer) -> dict[str, Any]:
    """What all have in common, in their words."""
    c = model.config
    hidden = 4 * c.dim if c.hidden is None else c.hidden
    return {
        "vocab_size": c.vocab,
        "max_position_embeddings": c.context,
        "d_model": c.dim,
        "encoder_layers": len(model.encoder.blocks),
        "decoder_layers": len(model.decoder.blocks),
        "encoder_attention_heads": c.heads,
        "decoder_attention_heads": c.heads,
        "encoder_ffn_dim": hidden,
        "decoder_ffn_dim": hidden,
        "activation_function": to_theirs(c.activation),
        "dropout": c.dropout,
        "attention_dropout": c.dropout,
        "scale_embedding": c.scaled,
        "is_encoder_decoder": True,
    }


def describe(model: Transformer) -> dict[str, Any]:
    return {
        "architectures": ["BartForConditionalGeneration"],
        **describe_like(model),
        "tie_word_embeddings": len(table_rules(model)) == 1,
    }


def writes_like(model: nn.Module, norm: str = "post") -> bool:
    """Is it a Transformer that could be one of them, with its norms there?"""
    return isinstance(model, Transformer) and model.config.norm == norm and not model.config.labels


def check_places(model_width: int, tensors: Tensors) -> None:
    """Positions of sines that lie in the file are those that the model computes by itself."""
    for name, table in tensors.items():
        if re.fullmatch(PLACES, name) and table.ndim == 2:
            wanted = sinusoidal(len(table), model_width, layout="half")
            if table.shape != wanted.shape or not torch.allclose(table.float(), wanted, atol=1e-2):
                raise WeightsError(f"{name} holds other positions than the sines and cosines of this architecture")


def writes(model: nn.Module) -> bool:
    if not isinstance(model, Transformer) or not writes_like(model):
        return False
    c = model.config
    return c.places == "learned" and c.offset == 2 and c.embedding_norm and c.target_vocab in (None, c.vocab)


FAMILY = Family(
    name="BART",
    model_type="bart",
    schema=Bart,
    harmless=HARMLESS,
    architectures={"BartForConditionalGeneration": "words", "BartModel": "words"},
    prefix=PREFIX,
    settle=settle,
    build=build,
    rules=rules,
    ignored=lambda model: (r"(model\.)?(encoder|decoder)\.version",),
    writes=writes,
    describe=describe,
)
