"""Gemma 3, of texts: Gemma 2 with normalised queries and keys in place of soft caps, and two bases of positions."""

from typing import Any

from pydantic import ConfigDict, PositiveFloat, PositiveInt
from torch import nn

from softlook.base.errors import WeightsError
from softlook.models.llama import Llama
from softlook.weights.families.gemma2 import GemmaLike, describe_gemma, gemma_config, is_gemma
from softlook.weights.families.llama import HARMLESS, bare, ignored, rules, settle
from softlook.weights.families.qwen2 import FAR, NEAR
from softlook.weights.families.rope import Rope, described
from softlook.weights.family import Family
from softlook.weights.schema import Closed

ARCHITECTURES = {
    "Gemma3ForCausalLM": "words",
    "Gemma3TextModel": "states",
    "Gemma3TextForSequenceClassification": "classes",
}
GLOBAL_BASE, LOCAL_BASE = 1_000_000.0, 10_000.0


class RopeByLayer(Closed):
    """`rope_parameters` for each kind of layer. A field that is not here may change the numbers, and is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    full_attention: Rope | None = None
    sliding_attention: Rope | None = None


class Gemma3(GemmaLike):
    """Hugging Face's Gemma3TextConfig, as far as it changes the numbers."""

    vocab_size: PositiveInt = 262208
    max_position_embeddings: PositiveInt = 131072
    attn_logit_softcapping: None = None  # pyright: ignore  (their model has no place for it)
    rope_parameters: RopeByLayer | None = None  # pyright: ignore[reportIncompatibleVariableOverride]
    rope_local_base_freq: PositiveFloat | None = None
    sliding_window_pattern: PositiveInt = 6


def build(theirs: Gemma3, head: str) -> Llama:
    rope = theirs.rope_parameters or RopeByLayer()
    near, far = rope.sliding_attention or Rope(), rope.full_attention or Rope()
    if (near.rope_type or near.type or "default") != "default" or near.partial_rotary_factor not in (None, 1):
        raise WeightsError(
            "this Gemma 3 stretches the positions of its layers with a window, or rotates a part of each head there; "
            "softlook's Llama does neither"
        )
    local = near.rope_theta or theirs.rope_local_base_freq or LOCAL_BASE
    if theirs.rope_scaling is not None:  # the older form, which says it of layers without a window alone
        far = far.model_copy(update=theirs.rope_scaling.model_dump(exclude_unset=True))
    changes = {"rope_parameters": far, "rope_scaling": None, "rope_theta": theirs.rope_theta or GLOBAL_BASE}
    plain = theirs.model_copy(update=changes)
    return Llama(gemma_config(plain, head, every=theirs.sliding_window_pattern, qk_norm=True, local_base=local))


def describe(model: Llama) -> dict[str, Any]:
    c = model.config
    far = described(c, model.head_width)
    near = far if c.local_base is None else {"rope_type": "default", "rope_theta": c.local_base}
    return describe_gemma(model, "Gemma3") | {
        "architectures": [kind for kind, head in ARCHITECTURES.items() if head == c.head],
        "rope_parameters": {FAR: far, NEAR: near},
    }


def writes(model: nn.Module) -> bool:
    return is_gemma(model, "qk_norm", "local_base") and model.config.qk_norm  # pyright: ignore


FAMILY = Family(
    name="Gemma 3",
    model_type="gemma3_text",
    schema=Gemma3,
    harmless=HARMLESS | {"cache_implementation", "_sliding_window_pattern"},
    architectures=ARCHITECTURES,
    prefix="model.",
    settle=settle,
    build=build,
    rules=rules,
    ignored=ignored,
    writes=writes,
    bare=bare,
    describe=describe,
)
