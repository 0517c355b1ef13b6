"""Llama. What it shares with Mistral, Qwen, Gemma and Phi-3 is here, and used there."""

from typing import Any, TypeGuard

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt
from torch import nn

from softlook.base.errors import WeightsError
from softlook.models.llama import Llama, LlamaConfig
from softlook.ops.masks.order import CAUSAL
from softlook.weights.families.activations import from_theirs, to_theirs
from softlook.weights.families.encoders import ClassConfig, class_fields, label_names
from softlook.weights.families.rope import Rotary, base_and_stretch, described, rotated_part
from softlook.weights.families.tables import tied_as_in_the_file
from softlook.weights.family import Family
from softlook.weights.renaming import Rule, Same, layer


class LlamaLike(Rotary, ClassConfig):
    """The fields that all of them share."""

    vocab_size: PositiveInt = 32000
    hidden_size: PositiveInt = 4096
    intermediate_size: PositiveInt = 11008
    num_hidden_layers: PositiveInt = 32
    num_attention_heads: PositiveInt = 32
    num_key_value_heads: PositiveInt | None = None
    head_dim: PositiveInt | None = None
    hidden_act: str = "silu"
    rms_norm_eps: PositiveFloat = 1e-6
    attention_dropout: NonNegativeFloat = 0.0
    tie_word_embeddings: bool = False
    is_causal: bool = True
    pad_token_id: int | None = None


class LlamaTheirs(LlamaLike):
    """Hugging Face's LlamaConfig, as far as it changes the numbers."""

    attention_bias: bool = False
    mlp_bias: bool = False


settle = tied_as_in_the_file("model.embed_tokens.weight", "lm_head.weight")
HARMLESS = frozenset({"is_llama_config", "pretraining_tp", "rope_interleaved"})


def config_of(theirs: LlamaLike, head: str, **changes: Any) -> LlamaConfig:
    """What all of them have in common, in our words."""
    base, stretch = base_and_stretch(theirs)
    if "partial_rotary_factor" not in changes and rotated_part(theirs) != 1:
        raise WeightsError("this model rotates only a part of each head; this architecture of Hugging Face's does not")
    if head == "classes":
        changes |= {"pad": theirs.pad_token_id, **class_fields(theirs, head)}
    shared: dict[str, Any] = {
        "vocab": theirs.vocab_size,
        "context": theirs.max_position_embeddings,
        "dim": theirs.hidden_size,
        "depth": theirs.num_hidden_layers,
        "heads": theirs.num_attention_heads,
        "kv_heads": theirs.num_key_value_heads,
        "head_width": theirs.head_dim,
        "hidden": theirs.intermediate_size,
        "activation": from_theirs(theirs.hidden_act),
        "eps": theirs.rms_norm_eps,
        "base": base,
        "stretch": stretch,
        "tied": theirs.tie_word_embeddings,
        "dropout": theirs.attention_dropout,
        "causal": theirs.is_causal,
        "head": head,
    }
    return LlamaConfig(**shared | changes)


def build(theirs: LlamaTheirs, head: str) -> Llama:
    if theirs.attention_bias or theirs.mlp_bias:
        raise WeightsError("this Llama has biases in its attention or feed-forward layers; softlook's has none")
    return Llama(config_of(theirs, head))


PRE_NORM = {"around_attend.norm": "input_layernorm", "around_feed.norm": "post_attention_layernorm"}
SANDWICH = {
    "around_attend.norm": "input_layernorm",
    "around_attend.closing": "post_attention_layernorm",
    "around_feed.norm": "pre_feedforward_layernorm",
    "around_feed.closing": "post_feedforward_layernorm",
}
QK_NORM = {"attend.query_norm": "self_attn.q_norm", "attend.key_norm": "self_attn.k_norm"}


def rules(model: Llama) -> list[Rule]:
    config = model.config
    found: list[Rule] = [
        Same("tokens.table.weight", "model.embed_tokens.weight"),
        Same("norm.weight", "model.norm.weight"),
    ]
    if config.head == "words" and not config.tied:
        found += layer("head", "lm_head", "weight")
    if config.head == "classes":
        found += layer("head.to_classes", "score", "weight")
    for i in range(config.depth):
        ours, theirs = f"blocks.{i}", f"model.layers.{i}"
        names = {
            **(SANDWICH if config.sandwich_norm else PRE_NORM),
            **(QK_NORM if config.qk_norm else {}),
            "attend.to_out": "self_attn.o_proj",
            "feed.to_gate": "mlp.gate_proj",
            "feed.to_hidden": "mlp.up_proj",
            "feed.to_out": "mlp.down_proj",
        }
        for our_name, their_name in names.items():
            found += layer(f"{ours}.{our_name}", f"{theirs}.{their_name}", "weight")
        for our_name, their_name in (("to_query", "q_proj"), ("to_key", "k_proj"), ("to_value", "v_proj")):
            kinds = ("weight", "bias") if config.biases else ("weight",)
            found += layer(f"{ours}.attend.{our_name}", f"{theirs}.self_attn.{their_name}", *kinds)
    return found


def ignored(model: Llama) -> tuple[str, ...]:
    turns = (r"(model\.)?(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq",)
    no_head_of_its_own = model.config.tied or model.config.head != "words"
    return (*turns, r"lm_head\.weight") if no_head_of_its_own else turns


def describe_like(model: Llama, name: str) -> dict[str, Any]:
    """What all of them have in common, in their words."""
    c: Any = model.config
    return {
        "architectures": [kind for kind, head in architectures(name).items() if head == c.head],
        "vocab_size": c.vocab,
        "max_position_embeddings": c.context,
        "hidden_size": c.dim,
        "intermediate_size": c.dim * 8 // 3 if c.hidden is None else c.hidden,
        "num_hidden_layers": c.depth,
        "num_attention_heads": c.heads,
        "num_key_value_heads": c.heads if c.kv_heads is None else c.kv_heads,
        "head_dim": model.head_width,
        "hidden_act": to_theirs(c.activation),
        "rms_norm_eps": c.eps,
        "attention_dropout": c.dropout,
        "rope_parameters": described(c, model.head_width),
        "tie_word_embeddings": c.tied,
        "is_causal": c.causal,
        **({"pad_token_id": c.pad} if c.head == "classes" else {}),
        **label_names(c),
    }


PARTS = """
    attention_logit_softcap attention_scale biases causal final_logit_softcap local_base partial_rotary_factor qk_norm
    sandwich_norm scaled_embeddings zero_centered_norm
"""


def has_only(model: nn.Module, *parts: str) -> TypeGuard[Llama]:
    """Is it a Llama, and are these the only parts in which it differs from the first one?"""
    if not isinstance(model, Llama):
        return False
    plain = LlamaConfig()
    return all(getattr(model.config, part) == getattr(plain, part) for part in {*PARTS.split()} - {*parts})


def describe(model: Llama) -> dict[str, Any]:
    return describe_like(model, "Llama") | {"attention_bias": False, "mlp_bias": False}


def has_window(model: Llama) -> bool:
    """Whether some layer looks through a window."""
    return any(reach not in (CAUSAL, None) for reach in model.reaches)


def is_even(model: Llama) -> bool:
    """Whether the heads share the model's width evenly, which transformers asks of a Llama, though not of a Mistral."""
    return model.config.dim % model.config.heads == 0


def writes(model: nn.Module) -> bool:
    return has_only(model, "causal") and not has_window(model) and is_even(model)


def bare(model: Llama) -> bool:
    return model.config.head == "states"


def architectures(name: str) -> dict[str, str]:
    """Their classes, and the head that each puts on."""
    return {f"{name}ForCausalLM": "words", f"{name}Model": "states", f"{name}ForSequenceClassification": "classes"}


FAMILY = Family(
    name="Llama",
    model_type="llama",
    schema=LlamaTheirs,
    harmless=HARMLESS,
    architectures=architectures("Llama"),
    prefix="model.",
    settle=settle,
    build=build,
    rules=rules,
    ignored=ignored,
    writes=writes,
    bare=bare,
    describe=describe,
)
