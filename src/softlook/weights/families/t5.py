"""T5, v1.0 and v1.1, mT5, and their encoders alone. Which words are said with the vectors they are read with, the file
itself tells."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt
from torch import nn

from softlook.base.errors import WeightsError
from softlook.models.t5 import T5, T5Config, T5Encoder, T5EncoderConfig
from softlook.weights.families import encoders
from softlook.weights.families.activations import from_theirs, to_theirs
from softlook.weights.families.tables import Tables, filled, same
from softlook.weights.family import Family
from softlook.weights.renaming import Rule, Same, Tensors, layer
from softlook.weights.schema import Closed
from softlook.weights.sentence import Sentence, sentence_files, sentence_head

TABLES = Tables("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight")


class Theirs(Closed):
    """Hugging Face's T5Config, as far as it changes the numbers."""

    vocab_size: PositiveInt = 32128
    d_model: PositiveInt = 512
    d_kv: PositiveInt = 64
    d_ff: PositiveInt = 2048
    num_layers: PositiveInt = 6
    num_decoder_layers: PositiveInt | None = None
    num_heads: PositiveInt = 8
    relative_attention_num_buckets: PositiveInt = 32
    relative_attention_max_distance: PositiveInt = 128
    dropout_rate: NonNegativeFloat = 0.1
    layer_norm_epsilon: PositiveFloat = 1e-6
    feed_forward_proj: str = "relu"
    dense_act_fn: str | None = None
    is_gated_act: bool | None = None
    tie_word_embeddings: bool = True
    scale_decoder_outputs: bool | None = None
    tie_encoder_decoder: bool = False
    is_causal: Literal[True] = True
    n_positions: PositiveInt = 512


class Multilingual(Theirs):
    """Hugging Face's MT5Config, as far as it changes the numbers."""

    vocab_size: PositiveInt = 250112
    d_ff: PositiveInt = 1024
    num_layers: PositiveInt = 8
    num_heads: PositiveInt = 6
    feed_forward_proj: str = "gated-gelu"


def settle_multilingual(config: Multilingual, tensors: Tensors) -> tuple[Theirs, Tensors]:
    """What the head sees is never scaled, whatever the config says."""
    return settle(config.model_copy(update={"scale_decoder_outputs": False}), tensors)


def settle(config: Theirs, tensors: Tensors) -> tuple[Theirs, Tensors]:
    """`tie_word_embeddings` says whether what the head sees is scaled; whether words are tied, the file itself does."""
    tensors = filled(filled(tensors, TABLES.shared, TABLES.source, TABLES.target), TABLES.shared, TABLES.head)
    if not (same(tensors, TABLES.shared, TABLES.source) and same(tensors, TABLES.shared, TABLES.target)):
        if TABLES.shared in tensors:
            raise WeightsError(
                "this T5 reads source and target with different vectors; softlook's has one table for both"
            )
        return config, tensors
    scaled = config.tie_word_embeddings if config.scale_decoder_outputs is None else config.scale_decoder_outputs
    tied = same(tensors, TABLES.shared, TABLES.head)
    config = config.model_copy(update={"tie_word_embeddings": tied, "scale_decoder_outputs": scaled})
    copies = {TABLES.source, TABLES.target, *((TABLES.head,) if tied else ())}
    return config, {name: tensor for name, tensor in tensors.items() if name not in copies}


def build(theirs: Theirs, head: str) -> T5 | T5Encoder:
    if theirs.tie_encoder_decoder:
        raise WeightsError("this T5's decoder is its encoder (tie_encoder_decoder); softlook's has two stacks")
    gated, activation = feed_of(theirs)
    sizes: dict[str, Any] = {
        "vocab": theirs.vocab_size,
        "dim": theirs.d_model,
        "depth": theirs.num_layers,
        "heads": theirs.num_heads,
        "head_width": theirs.d_kv,
        "hidden": theirs.d_ff,
        "activation": from_theirs(activation),
        "gated": gated,
        "buckets": theirs.relative_attention_num_buckets,
        "max_distance": theirs.relative_attention_max_distance,
        "dropout": theirs.dropout_rate,
        "eps": theirs.layer_norm_epsilon,
    }
    if head != "words":
        return T5Encoder(T5EncoderConfig(**sizes, context=theirs.n_positions, **encoders.plain_head(head)))
    scaled, tied = theirs.scale_decoder_outputs is not False, theirs.tie_word_embeddings
    return T5(T5Config(**sizes, decoder_depth=theirs.num_decoder_layers, tied=tied, scaled=scaled))


def found_head(named: str, folder: Path, names: Collection[str]) -> str:
    """An encoder may have been saved with sentence-transformers."""
    return sentence_head(folder) or named if named == "states" else named


def feed_of(theirs: Theirs) -> tuple[bool, str]:
    """Is the feed-forward layer gated, and what bends it? "gated-gelu" is the GELU by a tanh, "gelu" the exact one."""
    *before, activation = theirs.feed_forward_proj.split("-")
    if before not in ([], ["gated"]):
        raise WeightsError(
            f"feed_forward_proj wants an activation, or gated- and one; {theirs.feed_forward_proj!r} came"
        )
    gated = bool(before)
    activation = "gelu_new" if theirs.feed_forward_proj == "gated-gelu" else activation
    if theirs.is_gated_act not in (None, gated) or theirs.dense_act_fn not in (None, activation):
        raise WeightsError(
            f"feed_forward_proj says {theirs.feed_forward_proj!r}, but is_gated_act and dense_act_fn say otherwise"
        )
    return gated, activation


def rules(model: T5 | T5Encoder) -> list[Rule]:
    found: list[Rule] = [Same("tokens.table.weight", TABLES.shared)]
    stacks = {"encoder": model.encoder.blocks}
    if isinstance(model, T5):
        stacks["decoder"] = model.decoder.blocks
        found += [] if model.config.tied else layer("head", "lm_head", "weight")
    for stack, blocks in stacks.items():
        found.append(Same(f"{stack}.norm.weight", f"{stack}.final_layer_norm.weight"))
        distances = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        found.append(Same(f"{stack}.distances.table.weight", distances))
        for i in range(len(blocks)):
            found += block_rules(f"{stack}.blocks.{i}", f"{stack}.block.{i}.layer", model.config.gated)
    return found


def block_rules(ours: str, theirs: str, gated: bool) -> list[Rule]:
    crosses = ours.startswith("decoder")
    names = {"around_attend.norm": "0.layer_norm", **attention_names("attend", "0.SelfAttention")}
    if crosses:
        names |= {"around_cross.norm": "1.layer_norm", **attention_names("cross", "1.EncDecAttention")}
    last = 2 if crosses else 1
    names |= {"around_feed.norm": f"{last}.layer_norm", "feed.to_out": f"{last}.DenseReluDense.wo"}
    insides = {"feed.to_gate": "wi_0", "feed.to_hidden": "wi_1"} if gated else {"feed.to_hidden": "wi"}
    names |= {our: f"{last}.DenseReluDense.{their}" for our, their in insides.items()}
    return [Same(f"{ours}.{our}.weight", f"{theirs}.{their}.weight") for our, their in names.items()]


def attention_names(ours: str, theirs: str) -> dict[str, str]:
    names = {"to_query": "q", "to_key": "k", "to_value": "v", "to_out": "o"}
    return {f"{ours}.{our}": f"{theirs}.{their}" for our, their in names.items()}


def ignored(model: T5 | T5Encoder) -> tuple[str, ...]:
    if isinstance(model, T5Encoder):  # the file of a whole T5 may be read for its encoder
        return (r"decoder\..*", r"lm_head\.weight")
    return (r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",)


def describe(model: T5 | T5Encoder) -> dict[str, Any]:
    c = model.config
    activation = to_theirs(c.activation)
    gate = "gelu" if activation == "gelu_new" else activation
    sizes = {
        "vocab_size": c.vocab,
        "d_model": c.dim,
        "d_kv": c.head_width,
        "d_ff": c.hidden,
        "num_layers": len(model.encoder.blocks),
        "num_heads": c.heads,
        "relative_attention_num_buckets": c.buckets,
        "relative_attention_max_distance": c.max_distance,
        "dropout_rate": c.dropout,
        "layer_norm_epsilon": c.eps,
        "feed_forward_proj": f"gated-{gate}" if c.gated else activation,
    }
    if isinstance(c, T5EncoderConfig):
        return {"architectures": ["T5EncoderModel"], **sizes, "n_positions": c.context, "is_encoder_decoder": False}
    return {
        "architectures": ["T5ForConditionalGeneration"],
        **sizes,
        "num_decoder_layers": len(model.decoder.blocks) if isinstance(model, T5) else 0,
        "tie_word_embeddings": c.tied and c.scaled,
        "scale_decoder_outputs": c.scaled,
        "decoder_start_token_id": 0,
        "is_encoder_decoder": True,
    }


def beside(model: T5 | T5Encoder) -> dict[str, Any]:
    """What makes the folder one of sentence-transformers', where the model gives plain vectors of sentences."""
    c = model.config
    if not isinstance(c, T5EncoderConfig) or c.head == "states":
        return {}
    return sentence_files(Sentence(c.pooling, length_one=c.head == "embedding"), c.dim, c.context)


def writes(model: nn.Module) -> bool:
    """They have no name for a gate that is bent by the exact GELU."""
    return isinstance(model, T5 | T5Encoder) and not (model.config.gated and model.config.activation == "gelu")


FAMILY = Family(
    name="T5",
    model_type="t5",
    schema=Theirs,
    harmless=frozenset({"classifier_dropout", "initializer_factor"}),
    architectures={
        "T5ForConditionalGeneration": "words",
        "T5WithLMHeadModel": "words",
        "T5EncoderModel": "states",
    },
    head=found_head,
    settle=settle,
    build=build,
    rules=rules,
    ignored=ignored,
    writes=writes,
    describe=describe,
    beside=beside,
)
MT5 = replace(
    FAMILY,
    name="mT5",
    model_type="mt5",
    schema=Multilingual,
    architectures={"MT5ForConditionalGeneration": "words", "MT5EncoderModel": "states"},
    settle=settle_multilingual,
    writes=lambda model: False,  # the same tensors and numbers: written as T5
)
