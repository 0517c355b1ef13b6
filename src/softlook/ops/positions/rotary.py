"""Rotary position embedding (RoPE, Su et al., 2021) and its scaling."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from softlook.base.errors import ShapeError

Layout = Literal["half", "interleaved"]
"""Which elements of a vector form a pair: i and i + half, or neighbours."""


@dataclass(frozen=True)
class RotaryScaling:
    """How RoPE frequencies are scaled for contexts beyond the trained length."""

    scale_frequencies: Callable[[Tensor, float], Tensor]
    """(frequencies, theta) -> frequencies"""
    attention_factor: float = 1.0
    """Factor of cos and sin."""


def linear(factor: float) -> RotaryScaling:
    """Position interpolation (Chen et al., 2023): divide all frequencies by `factor`."""
    return RotaryScaling(lambda frequencies, theta: frequencies / factor)


def ntk(factor: float) -> RotaryScaling:
    """NTK-aware scaling: a larger theta; low frequencies are divided by `factor`, high ones hardly change."""

    def scale(frequencies: Tensor, theta: float) -> Tensor:
        dim = 2 * len(frequencies)
        return frequencies * factor ** (-torch.arange(0, dim, 2, device=frequencies.device) / max(dim - 2, 1))

    return RotaryScaling(scale)


def llama3(
    factor: float, *, context: int, low_freq_factor: float = 1.0, high_freq_factor: float = 4.0
) -> RotaryScaling:
    """Llama 3.1's scaling: keep frequencies with more than `high_freq_factor` periods in the trained context, divide
    those with fewer than `low_freq_factor` by `factor`, interpolate between.
    """

    def scale(frequencies: Tensor, theta: float) -> Tensor:
        periods = context * frequencies / (2 * math.pi)
        kept = ((periods - low_freq_factor) / (high_freq_factor - low_freq_factor)).clamp(0, 1)
        return frequencies * kept + frequencies / factor * (1 - kept)

    return RotaryScaling(scale)


def yarn(factor: float, *, context: int, beta_fast: float = 32.0, beta_slow: float = 1.0) -> RotaryScaling:
    """YaRN (Peng et al., 2023): interpolate along the frequency index, with an attention factor above 1."""

    def scale(frequencies: Tensor, theta: float) -> Tensor:
        half = len(frequencies)

        def index_with_periods(periods: float) -> float:
            return half * math.log(context / (periods * 2 * math.pi)) / math.log(theta)

        first = max(math.floor(index_with_periods(beta_fast)), 0)
        last = min(math.ceil(index_with_periods(beta_slow)), 2 * half - 1)
        index = torch.arange(half, device=frequencies.device, dtype=torch.float32)
        # A tiny context may put `last` before `first`; the result then follows Hugging Face's convention.
        scaled = ((index - first) / (last - first or 0.001)).clamp(0, 1)
        return frequencies * (1 - scaled) + frequencies / factor * scaled

    return RotaryScaling(scale, attention_factor=0.1 * math.log(factor) + 1 if factor > 1 else 1.0)


def as_positions(positions: int | Tensor) -> Tensor:
    """Return position indices as they are, and a count as the indices from 0."""
    return torch.arange(positions) if isinstance(positions, int) else positions


@dataclass(frozen=True, eq=False)
class RotaryAngles:
    """cos and sin of each position's angles in float32: (T, pairs) or (B, T, pairs)."""

    cos: Tensor
    sin: Tensor


def rotary_angles(
    positions: int | Int[Tensor, "*positions"],
    dim: int,
    *,
    theta: float = 10_000.0,
    scaling: RotaryScaling | None = None,
) -> RotaryAngles:
    """Return the angles of `dim // 2` pairs at each position: indices (T,) or (B, T), or their number.

    >>> rotary_angles(2, 4).cos
    tensor([[1.0000, 1.0000],
            [0.5403, 0.9999]])
    """
    if dim % 2:
        raise ShapeError(f"rotary_angles expects an even dim, got {dim}")
    indices = as_positions(positions)
    frequencies = theta ** -(torch.arange(0, dim, 2, device=indices.device, dtype=torch.float32) / dim)
    if scaling is not None:
        frequencies = scaling.scale_frequencies(frequencies, theta)
    # In half precision, positions beyond 256 would share an angle: angles are computed in float32.
    angles = indices[..., None].float() * frequencies
    factor = 1.0 if scaling is None else scaling.attention_factor
    return RotaryAngles(angles.cos() * factor, angles.sin() * factor)


def rotary(x: Float[Tensor, "B H T D"], angles: RotaryAngles, *, layout: Layout = "half") -> Float[Tensor, "B H T D"]:
    """Rotate each pair of elements by its position's angle. Elements beyond the pairs of `angles` stay as they are.

    Pairs are i and i + half ("half", as in GPT-NeoX, Llama and Hugging Face) or neighbours ("interleaved", as in the
    paper and GPT-J).

    >>> x = torch.ones(1, 1, 2, 4)
    >>> rotary(x, rotary_angles(2, 2))[0, 0]
    tensor([[ 1.0000,  1.0000,  1.0000,  1.0000],
            [-0.3012,  1.3818,  1.0000,  1.0000]])
    """
    cos, sin = (_per_head(part, x) for part in (angles.cos, angles.sin))
    rotated, rest = x[..., : 2 * cos.shape[-1]].to(cos.dtype), x[..., 2 * cos.shape[-1] :]
    if layout == "half":
        one, other = rotated.chunk(2, -1)
        pairs = torch.cat([one * cos - other * sin, other * cos + one * sin], -1)
    else:
        one, other = rotated[..., 0::2], rotated[..., 1::2]
        pairs = torch.stack([one * cos - other * sin, other * cos + one * sin], -1).flatten(-2)
    pairs = pairs.to(x.dtype)
    return torch.cat([pairs, rest], -1) if rest.shape[-1] else pairs


def _per_head(angle: Tensor, x: Tensor) -> Tensor:
    B, _, T, D = x.shape
    if angle.ndim not in (2, 3) or angle.shape[-2] != T or (angle.ndim == 3 and angle.shape[0] not in (1, B)):
        raise ShapeError(
            f"angles for batch {B} and {T} positions have shape ({T}, pairs) or ({B}, {T}, pairs), "
            f"got {tuple(angle.shape)}"
        )
    if 2 * angle.shape[-1] > D:
        raise ShapeError(f"{angle.shape[-1]} pairs need a head dimension of {2 * angle.shape[-1]}, got {D}")
    angle = angle.to(x.device, torch.float64 if x.dtype == torch.float64 else torch.float32)
    return angle.unsqueeze(-3)
