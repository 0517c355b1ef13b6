"""How fast each pair of numbers turns with the position, and how that is stretched beyond the trained length."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Layout = Literal["half", "interleaved"]
"""Which numbers of a vector make a pair: i and i + half of them, or neighbours."""


@dataclass(frozen=True)
class Scaling:
    """How frequencies are stretched, and what the phases are multiplied with."""

    stretch: Callable[[Tensor, float], Tensor]
    """(frequencies, base) -> frequencies"""
    magnitude: float = 1.0


def linear(factor: float) -> Scaling:
    """All positions `factor` times closer together."""
    return Scaling(lambda frequencies, base: frequencies / factor)


def ntk(factor: float) -> Scaling:
    """A larger base: slow pairs are stretched by `factor`, fast ones hardly at all."""

    def stretch(frequencies: Tensor, base: float) -> Tensor:
        width = 2 * len(frequencies)
        return frequencies * factor ** (-torch.arange(0, width, 2, device=frequencies.device) / max(width - 2, 1))

    return Scaling(stretch)


def llama3(factor: float, *, context: int, low: float = 1.0, high: float = 4.0) -> Scaling:
    """Pairs that turn more than `high` times in the trained context stay, fewer than `low` times are stretched."""

    def stretch(frequencies: Tensor, base: float) -> Tensor:
        turns = context * frequencies / (2 * math.pi)
        kept = ((turns - low) / (high - low)).clamp(0, 1)
        return frequencies * kept + frequencies / factor * (1 - kept)

    return Scaling(stretch)


def yarn(factor: float, *, context: int, fast: float = 32.0, slow: float = 1.0) -> Scaling:
    """Like `llama3`, blended along the pairs' numbers, with the phases made a little larger."""

    def stretch(frequencies: Tensor, base: float) -> Tensor:
        half = len(frequencies)

        def pair_that_turns(times: float) -> float:
            return half * math.log(context / (times * 2 * math.pi)) / math.log(base)

        first = max(math.floor(pair_that_turns(fast)), 0)
        last = min(math.ceil(pair_that_turns(slow)), 2 * half - 1)
        pairs = torch.arange(half, device=frequencies.device, dtype=torch.float32)
        # A tiny context may put `last` before `first`; what becomes of it then is Hugging Face's convention.
        stretched = ((pairs - first) / (last - first or 0.001)).clamp(0, 1)
        return frequencies * (1 - stretched) + frequencies / factor * stretched

    return Scaling(stretch, magnitude=0.1 * math.log(factor) + 1 if factor > 1 else 1.0)


def numbered(positions: int | Tensor) -> Tensor:
    """Position numbers as they are, or the first so many."""
    return torch.arange(positions) if isinstance(positions, int) else positions
