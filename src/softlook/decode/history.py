"""How a beam search went: all that was thought of at every word, as plain values that can be drawn."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Fate = Literal["kept", "finished", "dropped"]


@dataclass(frozen=True)
class Candidate:
    """One more word after one of the beams."""

    word: int
    parent: int
    """The number of the beam that it would go on from."""
    score: float
    """Of the whole sequence with this word: the sum of log-probabilities, and of what rules made of them."""
    log_probability: float
    """Of this word alone, by the model."""
    fate: Fate
    beam: int | None = None
    """The number of the beam that it became, where it was kept."""


@dataclass(frozen=True)
class Step:
    """All that was thought of for one sequence at one word, the best first; in groups, group after group."""

    sequence: int
    length: int
    """Words said with this one: 1 at first."""
    candidates: tuple[Candidate, ...]


Tell = Callable[[Step], None]
"""Is told of every step: `steps.append`, say."""
