"""Rotary settings as config.json has them, in the form of transformers 5 and in the one before."""

import math
from typing import Any

from pydantic import ConfigDict, FiniteFloat, PositiveFloat, PositiveInt

from softlook.base.errors import WeightsError
from softlook.embed.rotary import Stretch
from softlook.models.gpt import GPTConfig
from softlook.models.llama import LlamaConfig
from softlook.weights.schema import Closed


class Rope(Closed):
    """`rope_parameters`, or `rope_scaling`. A field that is not here may change the numbers, and is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rope_type: str | None = None
    type: str | None = None
    rope_theta: PositiveFloat | None = None
    factor: PositiveFloat | None = None
    original_max_position_embeddings: PositiveInt | None = None
    low_freq_factor: PositiveFloat = 1.0
    high_freq_factor: PositiveFloat = 4.0
    beta_fast: PositiveFloat | None = None
    beta_slow: PositiveFloat | None = None
    attention_factor: FiniteFloat | None = None
    mscale: FiniteFloat | None = None
    mscale_all_dim: FiniteFloat | None = None
    truncate: bool = True
    partial_rotary_factor: PositiveFloat | None = None
    short_factor: list[FiniteFloat] | None = None
    long_factor: list[FiniteFloat] | None = None
    finetuned: bool | None = None  # a note on how it was trained


class Rotary(Closed):
    """The fields of a config that say how positions turn."""

    max_position_embeddings: PositiveInt = 2048
    original_max_position_embeddings: PositiveInt | None = None
    rope_parameters: Rope | None = None
    rope_scaling: Rope | None = None
    rope_theta: PositiveFloat | None = None
    partial_rotary_factor: PositiveFloat | None = None


KNOWN = "default, linear, llama3, yarn"


def base_and_stretch(theirs: Rotary) -> tuple[float, Stretch | None]:
    """The base, and how positions are stretched."""
    rope = _given(theirs)
    base = next((base for base in (rope.rope_theta, theirs.rope_theta) if base is not None), 10_000.0)
    return base, _stretch(rope, theirs)


def rotated_part(theirs: Rotary, otherwise: float = 1.0) -> float:
    """The share of each head that is rotated."""
    rope = _given(theirs)
    told = (rope.partial_rotary_factor, theirs.partial_rotary_factor)
    return next((factor for factor in told if factor is not None), otherwise)


def _given(theirs: Rotary) -> Rope:
    """What the config says of positions, under its older or newer name; {} says nothing, not that all is default."""
    given = (rope for rope in (theirs.rope_scaling, theirs.rope_parameters) if rope is not None)
    return next((rope for rope in given if rope.model_fields_set), Rope())


def _stretch(rope: Rope, theirs: Rotary) -> Stretch | None:
    kind = rope.rope_type or rope.type or "default"
    first = theirs.original_max_position_embeddings or rope.original_max_position_embeddings
    first = first or theirs.max_position_embeddings
    if kind == "default":
        return None
    if kind == "yarn" and rope.truncate:
        factor = rope.factor or theirs.max_position_embeddings / first
        return Stretch(
            kind="yarn",
            factor=factor,
            context=first,
            low=rope.beta_slow or 1.0,
            high=rope.beta_fast or 32.0,
            magnitude=_magnitude(rope, factor),
        )
    if kind not in ("linear", "llama3") or rope.factor is None:
        raise WeightsError(
            f"this model stretches its positions as {kind!r:.40}, with factor={rope.factor}, truncate={rope.truncate}, "
            f"which softlook's Llama does not. It knows {KNOWN}."
        )
    if kind == "linear":
        return Stretch(kind="linear", factor=rope.factor)
    low, high = rope.low_freq_factor, rope.high_freq_factor
    return Stretch(kind="llama3", factor=rope.factor, context=first, low=low, high=high)


def _magnitude(rope: Rope, factor: float) -> float | None:
    """What the phases are multiplied with, where the factor does not already say it."""

    def grown(by: float) -> float:
        return 0.1 * by * math.log(factor) + 1 if factor > 1 else 1.0

    if rope.attention_factor is not None:
        return rope.attention_factor
    return grown(rope.mscale) / grown(rope.mscale_all_dim) if rope.mscale and rope.mscale_all_dim else None


def described(config: LlamaConfig | GPTConfig, width: int) -> dict[str, Any]:
    """`rope_parameters` for a config of ours, of whose heads so much is rotated."""
    stretch = config.stretch
    if stretch is None:
        return {"rope_type": "default", "rope_theta": config.base}
    if stretch.kind == "ntk":  # a larger base is all it is
        base = config.base * stretch.factor ** (width / max(width - 2, 1))
        return {"rope_type": "default", "rope_theta": base}
    found = {"rope_type": stretch.kind, "rope_theta": config.base, "factor": stretch.factor}
    if stretch.kind == "llama3":
        found |= {"low_freq_factor": stretch.low, "high_freq_factor": stretch.high or 4.0}
    if stretch.kind == "yarn":
        found |= {"beta_slow": stretch.low, "beta_fast": stretch.high or 32.0, "attention_factor": stretch.magnitude}
    return found if stretch.kind == "linear" else found | {"original_max_position_embeddings": stretch.context}
