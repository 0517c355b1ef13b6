"""GPT-NeoX, and Pythia with it: GPT with rotary positions in a part of each head, attention beside feed-forward."""

from typing import Any, Literal

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt
from torch import nn

from softlook.models.gpt import GPT, GPTConfig
from softlook.weights.families.activations import from_theirs, to_theirs
from softlook.weights.families.gpt2 import GPTLike, describe_head, head_of, head_rules, is_gpt, unused_head
from softlook.weights.families.rope import Rotary, base_and_stretch, described, rotated_part
from softlook.weights.families.tables import tied_as_in_the_file
from softlook.weights.family import Family
from softlook.weights.renaming import Interleaved, Rule, Same, layer

ARCHITECTURES = {
    "GPTNeoXForCausalLM": "words",
    "GPTNeoXModel": "states",
    "GPTNeoXForSequenceClassification": "classes",
}


class GPTNeoX(Rotary, GPTLike):
    """Hugging Face's GPTNeoXConfig, as far as it changes the numbers."""

    vocab_size: PositiveInt = 50432
    hidden_size: PositiveInt = 6144
    num_hidden_layers: PositiveInt = 44
    num_attention_heads: PositiveInt = 64
    intermediate_size: PositiveInt = 24576
    hidden_act: str = "gelu"
    hidden_dropout: NonNegativeFloat = 0.0
    layer_norm_eps: PositiveFloat = 1e-5
    rotary_pct: PositiveFloat = 0.25
    rotary_emb_base: PositiveFloat = 10_000.0
    use_parallel_residual: bool = True
    tie_word_embeddings: bool = False
    attention_bias: Literal[True] = True
    is_causal: Literal[True] = True


def build(theirs: GPTNeoX, head: str) -> GPT:
    # Their names for these two are older than those of other models, and come first.
    theirs = theirs.model_copy(
        update={"rope_theta": theirs.rotary_emb_base, "partial_rotary_factor": theirs.rotary_pct}
    )
    base, stretch = base_and_stretch(theirs)
    return GPT(
        GPTConfig(
            vocab=theirs.vocab_size,
            context=theirs.max_position_embeddings,
            dim=theirs.hidden_size,
            depth=theirs.num_hidden_layers,
            heads=theirs.num_attention_heads,
            hidden=theirs.intermediate_size,
            activation=from_theirs(theirs.hidden_act),
            dropout=theirs.hidden_dropout,
            eps=theirs.layer_norm_eps,
            tied=theirs.tie_word_embeddings,
            positions="rotary",
            base=base,
            stretch=stretch,
            partial_rotary_factor=rotated_part(theirs),
            parallel=theirs.use_parallel_residual,
            **head_of(theirs, head),
        )
    )


def rules(model: GPT) -> list[Rule]:
    found: list[Rule] = [
        Same("tokens.table.weight", "gpt_neox.embed_in.weight"),
        *layer("norm", "gpt_neox.final_layer_norm"),
        *head_rules(model),
    ]
    for i in range(model.config.depth):
        found += layer_rules(f"blocks.{i}", f"gpt_neox.layers.{i}", "attention", model.config.heads)
    return found


def layer_rules(ours: str, theirs: str, attention: str, heads: int) -> list[Rule]:
    """One layer, as GPT-NeoX and Bloom name it."""
    found = [
        *layer(f"{ours}.around_attend.norm", f"{theirs}.input_layernorm"),
        *layer(f"{ours}.around_feed.norm", f"{theirs}.post_attention_layernorm"),
        *layer(f"{ours}.attend.to_out", f"{theirs}.{attention}.dense"),
        *layer(f"{ours}.feed.to_hidden", f"{theirs}.mlp.dense_h_to_4h"),
        *layer(f"{ours}.feed.to_out", f"{theirs}.mlp.dense_4h_to_h"),
    ]
    for kind in ("weight", "bias"):
        parts = tuple(f"{ours}.attend.to_{part}.{kind}" for part in ("query", "key", "value"))
        found.append(Interleaved(parts, f"{theirs}.{attention}.query_key_value.{kind}", heads))
    return found


def ignored(model: GPT) -> tuple[str, ...]:
    worked_out = r"(gpt_neox\.)?(layers\.\d+\.attention\.)?(bias|masked_bias|rotary_emb\.inv_freq)"
    return (worked_out, *unused_head(model))


def modern(name: str) -> str:
    """The head for words was once called embed_out."""
    return name.replace("embed_out.", "lm_head.", 1) if name.startswith("embed_out.") else name


def describe(model: GPT) -> dict[str, Any]:
    c = model.config
    rope = described(c, int(c.dim // c.heads * c.partial_rotary_factor))
    return {
        **describe_head(model, ARCHITECTURES),
        "vocab_size": c.vocab,
        "max_position_embeddings": c.context,
        "hidden_size": c.dim,
        "num_hidden_layers": c.depth,
        "num_attention_heads": c.heads,
        "intermediate_size": 4 * c.dim if c.hidden is None else c.hidden,
        "hidden_act": to_theirs(c.activation),
        "hidden_dropout": c.dropout,
        "attention_dropout": c.dropout,
        "layer_norm_eps": c.eps,
        "use_parallel_residual": c.parallel,
        "rope_parameters": rope | {"partial_rotary_factor": c.partial_rotary_factor},
    }


def writes(model: nn.Module) -> bool:
    return is_gpt(model, "parallel", "partial_rotary_factor", "stretch", positions="rotary")


def bare(model: GPT) -> bool:
    return model.config.head == "states"


FAMILY = Family(
    name="GPT-NeoX",
    model_type="gpt_neox",
    schema=GPTNeoX,
    harmless=frozenset({"attention_dropout", "classifier_dropout"}),
    architectures=ARCHITECTURES,
    prefix="gpt_neox.",
    modern=modern,
    settle=tied_as_in_the_file("gpt_neox.embed_in.weight", "lm_head.weight"),
    build=build,
    rules=rules,
    ignored=ignored,
    writes=writes,
    bare=bare,
    describe=describe,
)
