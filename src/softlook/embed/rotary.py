"""RoPE settings: context extension and partial rotation."""

from dataclasses import dataclass, replace
from typing import Literal

from softlook.base.errors import ConfigError
from softlook.ops.positions.rotary import RotaryScaling, linear, llama3, ntk, yarn


@dataclass(frozen=True, kw_only=True)
class RopeScaling:
    """RoPE scaling: extends a model beyond the context it was first trained for."""

    rope_type: Literal["linear", "ntk", "llama3", "yarn"]
    """Position interpolation, NTK-aware theta, Llama 3's blend by frequency, or YaRN."""
    factor: float
    """Ratio of the new context to the original one."""
    original_context: int | None = None
    """The original context; required by "llama3" and "yarn"."""
    low_freq_factor: float = 1.0
    """Pairs with fewer turns than this in the original context are scaled in full ("llama3", "yarn")."""
    high_freq_factor: float | None = None
    """Pairs with more turns than this are not scaled; default: 4 ("llama3") or 32 ("yarn")."""
    attention_factor: float | None = None
    """Factor of cosines and sines; default: 1, or for "yarn" the value derived from `factor`."""


def frequency_scaling(rope_scaling: RopeScaling | None) -> RotaryScaling | None:
    """The scaling of the rotary frequencies that a config describes."""
    if rope_scaling is None:
        return None
    rope_type, factor, context = rope_scaling.rope_type, rope_scaling.factor, rope_scaling.original_context
    low, high = rope_scaling.low_freq_factor, rope_scaling.high_freq_factor
    high = {"llama3": 4.0}.get(rope_type, 32.0) if high is None else high
    if factor <= 0 or not 0 < low < high:
        raise ConfigError(
            "RoPE scaling requires factor > 0 and 0 < low_freq_factor < high_freq_factor, "
            f"got factor={factor}, low_freq_factor={low}, high_freq_factor={high}"
        )
    if rope_type in ("linear", "ntk"):
        scaling = {"linear": linear, "ntk": ntk}[rope_type](factor)
    elif context is None:
        raise ConfigError(f"RoPE scaling {rope_type!r} requires original_context")
    elif rope_type == "llama3":
        scaling = llama3(factor, context=context, low_freq_factor=low, high_freq_factor=high)
    else:
        scaling = yarn(factor, context=context, beta_slow=low, beta_fast=high)
    attention_factor = rope_scaling.attention_factor
    return scaling if attention_factor is None else replace(scaling, attention_factor=attention_factor)


def rotary_dim(head_dim: int, factor: float) -> int:
    """Number of elements of a head that are rotated: `factor` of it, which must be even."""
    dim = int(head_dim * factor)
    if dim % 2 or not 0 < dim <= head_dim:
        raise ConfigError(f"RoPE rotates pairs of elements: {factor:g} of head_dim {head_dim} is not an even number")
    return dim
