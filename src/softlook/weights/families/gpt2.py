"""GPT-2. Its linear layers are stored on their side, and query, key and value in one piece.

What GPT-NeoX, OPT and Bloom share with it is here, and used there.
"""

from collections.abc import Mapping
from typing import Any, TypeGuard

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt
from torch import nn

from softlook.base.errors import WeightsError
from softlook.models.gpt import GPT, GPTConfig
from softlook.weights.families.activations import from_theirs, to_theirs
from softlook.weights.families.encoders import ClassConfig, class_fields, label_names
from softlook.weights.families.tables import tied_as_in_the_file
from softlook.weights.family import Family
from softlook.weights.renaming import Rule, Same, Stacked, layer

ARCHITECTURES = {
    "GPT2LMHeadModel": "words",
    "GPT2Model": "words",
    "GPT2ForSequenceClassification": "classes",
}


class GPTLike(ClassConfig):
    """The fields that all of them share."""

    pad_token_id: int | None = None


class GPT2(GPTLike):
    """Hugging Face's GPT2Config, as far as it changes the numbers."""

    vocab_size: PositiveInt = 50257
    n_positions: PositiveInt = 1024
    n_embd: PositiveInt = 768
    n_layer: PositiveInt = 12
    n_head: PositiveInt = 12
    n_inner: PositiveInt | None = None
    activation_function: str = "gelu_new"
    resid_pdrop: NonNegativeFloat = 0.1
    layer_norm_epsilon: PositiveFloat = 1e-5
    scale_attn_weights: bool = True
    scale_attn_by_inverse_layer_idx: bool = False
    add_cross_attention: bool = False
    tie_word_embeddings: bool = True
    is_causal: bool = True


def build(theirs: GPT2, head: str) -> GPT:
    if theirs.scale_attn_by_inverse_layer_idx or not theirs.scale_attn_weights or theirs.add_cross_attention:
        raise WeightsError(
            "this GPT-2 scales its scores by layer, not at all, or looks across; softlook's GPT does not"
        )
    return GPT(
        GPTConfig(
            vocab=theirs.vocab_size,
            context=theirs.n_positions,
            dim=theirs.n_embd,
            depth=theirs.n_layer,
            heads=theirs.n_head,
            hidden=theirs.n_inner,
            activation=from_theirs(theirs.activation_function),
            dropout=theirs.resid_pdrop,
            eps=theirs.layer_norm_epsilon,
            tied=theirs.tie_word_embeddings,
            causal=theirs.is_causal,
            **head_of(theirs, head),
        )
    )


def head_of(theirs: GPTLike, head: str) -> dict[str, Any]:
    """The head of a model, in our words."""
    if head != "classes":
        return {"head": head}
    return {"head": head, "pad": theirs.pad_token_id, **class_fields(theirs, head)}


def head_rules(model: GPT) -> list[Rule]:
    """The head of a model, as all of them name it."""
    if model.config.head == "words" and not model.config.tied:
        return layer("head", "lm_head", "weight")
    return layer("head.to_classes", "score", "weight") if model.config.head == "classes" else []


def describe_head(model: GPT, architectures: Mapping[str, str]) -> dict[str, Any]:
    """The head of a model, in their words."""
    c: Any = model.config
    padding = {"pad_token_id": c.pad} if c.head == "classes" else {}
    kind = next(kind for kind, head in architectures.items() if head == c.head)
    return {"architectures": [kind], "tie_word_embeddings": c.tied, **padding, **label_names(c)}


PARTS = """
    causal embedding_norm embedding_width labels norm parallel partial_rotary_factor position_offset positions stretch
"""


def is_gpt(model: nn.Module, *free: str, **parts: Any) -> TypeGuard[GPT]:
    """Is it a GPT, are these its parts, and is it but for the `free` ones GPT-2 beside?"""
    if not isinstance(model, GPT):
        return False
    wanted = {part: parts.get(part, getattr(GPTConfig(), part)) for part in PARTS.split() if part not in free}
    return all(getattr(model.config, part) == value for part, value in wanted.items())


def rules(model: GPT) -> list[Rule]:
    found: list[Rule] = [
        Same("tokens.table.weight", "transformer.wte.weight"),
        Same("places.table.weight", "transformer.wpe.weight"),
        *layer("norm", "transformer.ln_f"),
    ]
    found += head_rules(model)
    for i in range(model.config.depth):
        ours, theirs = f"blocks.{i}", f"transformer.h.{i}"
        found += [
            *layer(f"{ours}.around_attend.norm", f"{theirs}.ln_1"),
            *layer(f"{ours}.around_feed.norm", f"{theirs}.ln_2"),
            *layer(f"{ours}.attend.to_out", f"{theirs}.attn.c_proj", on_its_side=True),
            *layer(f"{ours}.feed.to_hidden", f"{theirs}.mlp.c_fc", on_its_side=True),
            *layer(f"{ours}.feed.to_out", f"{theirs}.mlp.c_proj", on_its_side=True),
        ]
        for kind in ("weight", "bias"):
            parts = tuple(f"{ours}.attend.{part}.{kind}" for part in ("to_query", "to_key", "to_value"))
            found.append(Stacked(parts, f"{theirs}.attn.c_attn.{kind}", on_its_side=kind == "weight"))
    return found


def ignored(model: GPT) -> tuple[str, ...]:
    masks = (r"(transformer\.)?h\.\d+\.attn\.(bias|masked_bias)",)
    return (*masks, *unused_head(model))


def unused_head(model: GPT) -> tuple[str, ...]:
    """A head for words that is the table itself, or that nobody asks."""
    return (r"lm_head\.weight",) if model.config.tied or model.config.head != "words" else ()


def describe(model: GPT) -> dict[str, Any]:
    c = model.config
    return {
        **describe_head(model, ARCHITECTURES),
        "vocab_size": c.vocab,
        "n_positions": c.context,
        "n_embd": c.dim,
        "n_layer": c.depth,
        "n_head": c.heads,
        "n_inner": c.hidden,
        "activation_function": to_theirs(c.activation),
        "resid_pdrop": c.dropout,
        "embd_pdrop": c.dropout,
        "attn_pdrop": c.dropout,
        "layer_norm_epsilon": c.eps,
        "is_causal": c.causal,
    }


def writes(model: nn.Module) -> bool:
    return is_gpt(model, "causal") and model.config.head != "states"


FAMILY = Family(
    name="GPT-2",
    model_type="gpt2",
    schema=GPT2,
    harmless=frozenset({"embd_pdrop", "attn_pdrop", "initializer_range", "n_ctx", "reorder_and_upcast_attn"}),
    architectures=ARCHITECTURES,
    prefix="transformer.",
    settle=tied_as_in_the_file("transformer.wte.weight", "lm_head.weight"),
    build=build,
    rules=rules,
    ignored=ignored,
    writes=writes,
    describe=describe,
)
