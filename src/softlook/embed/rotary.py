"""Settings of rotary positions: how much of a head is rotated, and how positions are stretched."""

from dataclasses import dataclass, replace
from typing import Literal

from softlook.base.errors import ConfigError
from softlook.ops.positions.frequencies import Scaling, linear, llama3, ntk, yarn


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """How positions are stretched beyond the length that a model was first trained for."""

    kind: Literal["linear", "ntk", "llama3", "yarn"]
    """All positions alike, by a larger base, or fast and slow pairs apart, in one of two ways."""
    factor: float
    """How many times longer."""
    context: int | None = None
    """The length first trained for; only "llama3" and "yarn" ask."""
    low: float = 1.0
    """Pairs that turn fewer times than this in that length are stretched in full; likewise."""
    high: float | None = None
    """Pairs that turn more often than this stay; 4 ("llama3") or 32 ("yarn") where not told."""
    magnitude: float | None = None
    """What the phases are multiplied with; where not told 1, or in "yarn" what follows from the factor."""


def scaling_of(stretch: Stretch | None) -> Scaling | None:
    """What is done to the frequencies."""
    if stretch is None:
        return None
    factor, context, low = stretch.factor, stretch.context, stretch.low
    high = {"llama3": 4.0}.get(stretch.kind, 32.0) if stretch.high is None else stretch.high
    if factor <= 0 or not 0 < low < high:
        raise ConfigError(f"a stretch wants factor > 0 and 0 < low < high; {factor=}, {low=}, {high=} came")
    if stretch.kind in ("linear", "ntk"):
        made = {"linear": linear, "ntk": ntk}[stretch.kind](factor)
    elif context is None:
        raise ConfigError(f"to stretch positions as {stretch.kind!r}, say for which context it was first trained")
    elif stretch.kind == "llama3":
        made = llama3(factor, context=context, low=low, high=high)
    else:
        made = yarn(factor, context=context, slow=low, fast=high)
    return made if stretch.magnitude is None else replace(made, magnitude=stretch.magnitude)


def rotary_width_of(head_width: int, factor: float) -> int:
    """How many numbers of a head are rotated."""
    width = int(head_width * factor)
    if width % 2 or not 0 < width <= head_width:
        raise ConfigError(
            f"rotary positions turn pairs of numbers; {factor:g} of a head {head_width} wide is not made of pairs"
        )
    return width
