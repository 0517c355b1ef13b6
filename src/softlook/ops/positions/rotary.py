"""Positions as rotations: a dot product of two rotated vectors depends on how far apart they stand."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from softlook.base.errors import ShapeError
from softlook.ops.positions.frequencies import Layout, Scaling, numbered


@dataclass(frozen=True, eq=False)
class Phases:
    """Cosine and sine of each position's angles, in single precision: (T, pairs) or (B, T, pairs)."""

    cos: Tensor
    sin: Tensor


def phases(
    positions: int | Int[Tensor, "*places"], width: int, *, base: float = 10_000.0, scaling: Scaling | None = None
) -> Phases:
    """The angles of `width // 2` pairs at each position: numbers (T,), one set per sequence (B, T), or how many.

    >>> phases(2, 4).cos
    tensor([[1.0000, 1.0000],
            [0.5403, 0.9999]])
    """
    if width % 2:
        raise ShapeError(f"rotary turns pairs of numbers and wants an even width; {width} came")
    places = numbered(positions)
    frequencies = base ** -(torch.arange(0, width, 2, device=places.device, dtype=torch.float32) / width)
    if scaling is not None:
        frequencies = scaling.stretch(frequencies, base)
    # Half precision would give positions beyond 256 the same angle: phases are worked out in single.
    angles = places[..., None].float() * frequencies
    magnitude = 1.0 if scaling is None else scaling.magnitude
    return Phases(angles.cos() * magnitude, angles.sin() * magnitude)


def rotary(x: Float[Tensor, "B H T D"], phases: Phases, *, layout: Layout = "half") -> Float[Tensor, "B H T D"]:
    """Turn each pair of numbers by its position's angle. Numbers beyond the phases' pairs stay as they are.

    Pairs are i and i + half of them ("half", as in NeoX, Llama and Hugging Face) or neighbours
    ("interleaved", as published, and in GPT-J).

    >>> x = torch.ones(1, 1, 2, 4)
    >>> rotary(x, phases(2, 2))[0, 0]
    tensor([[ 1.0000,  1.0000,  1.0000,  1.0000],
            [-0.3012,  1.3818,  1.0000,  1.0000]])
    """
    cos, sin = (_per_head(part, x) for part in (phases.cos, phases.sin))
    turned, rest = x[..., : 2 * cos.shape[-1]].to(cos.dtype), x[..., 2 * cos.shape[-1] :]
    if layout == "half":
        one, other = turned.chunk(2, -1)
        pairs = torch.cat([one * cos - other * sin, other * cos + one * sin], -1)
    else:
        one, other = turned[..., 0::2], turned[..., 1::2]
        pairs = torch.stack([one * cos - other * sin, other * cos + one * sin], -1).flatten(-2)
    pairs = pairs.to(x.dtype)
    return torch.cat([pairs, rest], -1) if rest.shape[-1] else pairs


def _per_head(phase: Tensor, x: Tensor) -> Tensor:
    B, _, T, D = x.shape
    if phase.ndim not in (2, 3) or phase.shape[-2] != T or (phase.ndim == 3 and phase.shape[0] not in (1, B)):
        raise ShapeError(
            f"phases for {B} x {T} positions are ({T}, pairs) or ({B}, {T}, pairs); {tuple(phase.shape)} came"
        )
    if 2 * phase.shape[-1] > D:
        raise ShapeError(f"{phase.shape[-1]} pairs need a width of {2 * phase.shape[-1]}; these heads are {D} wide")
    phase = phase.to(x.device, torch.float64 if x.dtype == torch.float64 else torch.float32)
    return phase.unsqueeze(-3)
