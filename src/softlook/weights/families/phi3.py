"""Phi-3: Llama with its projections fused, part of each head rotated, and perhaps a window in every layer."""

from typing import Any, Literal

from pydantic import PositiveFloat, PositiveInt
from torch import nn

from softlook.base.errors import WeightsError
from softlook.models.llama import Llama
from softlook.weights.families import llama
from softlook.weights.families.llama import (
    HARMLESS,
    LlamaLike,
    architectures,
    bare,
    config_of,
    describe_like,
    has_only,
    ignored,
    settle,
)
from softlook.weights.families.rope import Rope, rotated_part
from softlook.weights.family import Family
from softlook.weights.renaming import Rule, Stacked

FUSED = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")


class Phi3(LlamaLike):
    """Hugging Face's Phi3Config, as far as it changes the numbers."""

    vocab_size: PositiveInt = 32064
    hidden_size: PositiveInt = 3072
    intermediate_size: PositiveInt = 8192
    max_position_embeddings: PositiveInt = 4096
    rms_norm_eps: PositiveFloat = 1e-5
    sliding_window: PositiveInt | None = None
    pad_token_id: int | None = 32000
    is_causal: Literal[True] = True  # pyright: ignore[reportIncompatibleVariableOverride]  (frozen)


def build(theirs: Phi3, head: str) -> Llama:
    rope = theirs.rope_scaling or theirs.rope_parameters or Rope()
    kind = rope.rope_type or rope.type or "default"
    if kind != "default":
        raise WeightsError(
            f"this Phi-3 stretches its positions as {kind!r:.40}, by other factors for short texts than for long ones; "
            "softlook reads Phi-3 without stretched positions only"
        )
    return Llama(config_of(theirs, head, window=theirs.sliding_window, partial_rotary_factor=rotated_part(theirs)))


def rules(model: Llama) -> list[Rule]:
    fused = tuple(f"{name}.weight" for name in FUSED)
    found = [rule for rule in llama.rules(model) if not rule.theirs.endswith(fused)]
    c, width = model.config, model.head_width
    shared = (c.heads if c.kv_heads is None else c.kv_heads) * width
    for i in range(c.depth):
        ours, theirs = f"blocks.{i}", f"model.layers.{i}"
        looks = tuple(f"{ours}.attend.to_{part}.weight" for part in ("query", "key", "value"))
        gates = (f"{ours}.feed.to_gate.weight", f"{ours}.feed.to_hidden.weight")
        found.append(Stacked(looks, f"{theirs}.self_attn.qkv_proj.weight", sizes=(c.heads * width, shared, shared)))
        found.append(Stacked(gates, f"{theirs}.mlp.gate_up_proj.weight"))
    return found


def describe(model: Llama) -> dict[str, Any]:
    c, found = model.config, describe_like(model, "Phi3")
    rope = found["rope_parameters"] | {"partial_rotary_factor": c.partial_rotary_factor}
    # They take an id for padding from elsewhere where none is told, and their table has to have it.
    return found | {"rope_parameters": rope, "sliding_window": c.window, "pad_token_id": c.pad}


def writes(model: nn.Module) -> bool:
    """Where all of each head is rotated, it is a Llama or a Mistral."""
    if not has_only(model, "partial_rotary_factor") or model.config.partial_rotary_factor == 1:
        return False
    return model.config.stretch is None and len(set(model.reaches)) == 1


FAMILY = Family(
    name="Phi-3",
    model_type="phi3",
    schema=Phi3,
    harmless=HARMLESS | {"embd_pdrop", "resid_pdrop"},
    architectures=architectures("Phi3"),
    prefix="model.",
    settle=settle,
    build=build,
    rules=rules,
    ignored=ignored,
    writes=writes,
    bare=bare,
    describe=describe,
)
