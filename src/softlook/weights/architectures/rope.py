"""RoPE fields of config.json, in the current and the older form."""

import math
from typing import Any

from pydantic import ConfigDict, FiniteFloat, PositiveFloat, PositiveInt

from softlook.base.errors import WeightsError
from softlook.embed.rotary import RopeScaling
from softlook.models.gpt import GPTConfig
from softlook.models.llama import LlamaConfig
from softlook.weights.schema import HFConfigBase


class HFRopeParameters(HFConfigBase):
    """`rope_parameters` or `rope_scaling`. Unknown fields are refused."""

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
    finetuned: bool | None = None  # ignored

    @property
    def kind(self) -> str:
        """rope_type, or `type`, its older name."""
        return self.rope_type or self.type or "default"


class HFRotaryConfig(HFConfigBase):
    """RoPE fields of a config."""

    max_position_embeddings: PositiveInt = 2048
    original_max_position_embeddings: PositiveInt | None = None
    rope_parameters: HFRopeParameters | None = None
    rope_scaling: HFRopeParameters | None = None
    rope_theta: PositiveFloat | None = None
    partial_rotary_factor: PositiveFloat | None = None


SUPPORTED = "default, linear, llama3, yarn"


def theta_and_scaling(hf_config: HFRotaryConfig) -> tuple[float, RopeScaling | None]:
    """rope_theta and RoPE scaling of a config."""
    rope = _rope_parameters(hf_config)
    theta = next((theta for theta in (rope.rope_theta, hf_config.rope_theta) if theta is not None), 10_000.0)
    return theta, _rope_scaling(rope, hf_config)


def rotary_fraction(hf_config: HFRotaryConfig) -> float:
    """partial_rotary_factor of a config; default: 1."""
    rope = _rope_parameters(hf_config)
    factors = (rope.partial_rotary_factor, hf_config.partial_rotary_factor)
    return next((factor for factor in factors if factor is not None), 1.0)


def _rope_parameters(hf_config: HFRotaryConfig) -> HFRopeParameters:
    """The RoPE parameters under their older or newer name; an empty object counts as absent."""
    given = (rope for rope in (hf_config.rope_scaling, hf_config.rope_parameters) if rope is not None)
    return next((rope for rope in given if rope.model_fields_set), HFRopeParameters())


def _rope_scaling(rope: HFRopeParameters, hf_config: HFRotaryConfig) -> RopeScaling | None:
    rope_type = rope.kind
    original = hf_config.original_max_position_embeddings or rope.original_max_position_embeddings
    original = original or hf_config.max_position_embeddings
    if rope_type == "default":
        return None
    if rope_type == "yarn" and rope.truncate:
        factor = rope.factor or hf_config.max_position_embeddings / original
        return RopeScaling(
            rope_type="yarn",
            factor=factor,
            original_context=original,
            low_freq_factor=rope.beta_slow or 1.0,
            high_freq_factor=rope.beta_fast or 32.0,
            attention_factor=_attention_factor(rope, factor),
        )
    if rope_type not in ("linear", "llama3") or rope.factor is None:
        raise WeightsError(
            f"rope_type {rope_type!r:.40} with factor={rope.factor}, truncate={rope.truncate} is not supported. "
            f"Supported: {SUPPORTED}."
        )
    if rope_type == "linear":
        return RopeScaling(rope_type="linear", factor=rope.factor)
    low, high = rope.low_freq_factor, rope.high_freq_factor
    return RopeScaling(
        rope_type="llama3", factor=rope.factor, original_context=original, low_freq_factor=low, high_freq_factor=high
    )


def _attention_factor(rope: HFRopeParameters, factor: float) -> float | None:
    """attention_factor of YaRN, given or from mscale; None: the default for this factor."""

    def scale(mscale: float) -> float:
        return 0.1 * mscale * math.log(factor) + 1 if factor > 1 else 1.0

    if rope.attention_factor is not None:
        return rope.attention_factor
    return scale(rope.mscale) / scale(rope.mscale_all_dim) if rope.mscale and rope.mscale_all_dim else None


def hf_rope_parameters(config: LlamaConfig | GPTConfig, width: int) -> dict[str, Any]:
    """`rope_parameters` of config.json; `width` is the rotated part of head_dim."""
    scaling = config.rope_scaling
    if scaling is None:
        return {"rope_type": "default", "rope_theta": config.rope_theta}
    if scaling.rope_type == "ntk":  # NTK scaling is a larger theta
        theta = config.rope_theta * scaling.factor ** (width / max(width - 2, 1))
        return {"rope_type": "default", "rope_theta": theta}
    found = {"rope_type": scaling.rope_type, "rope_theta": config.rope_theta, "factor": scaling.factor}
    if scaling.rope_type == "llama3":
        found |= {"low_freq_factor": scaling.low_freq_factor, "high_freq_factor": scaling.high_freq_factor or 4.0}
    if scaling.rope_type == "yarn":
        found |= {
            "beta_slow": scaling.low_freq_factor,
            "beta_fast": scaling.high_freq_factor or 32.0,
            "attention_factor": scaling.attention_factor,
        }
    if scaling.rope_type != "linear":
        found |= {"original_max_position_embeddings": scaling.original_context}
    return found
