"""What was said so far, and what came of it: plain values."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Reason = Literal["end", "stop", "length"]
"""Why there is no more: an end was said, a stop string was, or there was no room left."""


@dataclass(frozen=True)
class Said:
    """A sequence under way: all that rules and picks know of it."""

    prompt: Sequence[int]
    """What it began with; for an encoder-decoder, what its answer began with."""
    new: Sequence[int] = ()
    """What was said since."""
    number: int = 0
    """Which of several sequences it is: each has dice of its own."""

    @property
    def ids(self) -> list[int]:
        """All of it."""
        return [*self.prompt, *self.new]

    def last(self, count: int) -> list[int]:
        """The last so many ids, or as many as there are."""
        new = list(self.new[max(len(self.new) - count, 0) :])
        return [*self.prompt[max(len(self.prompt) - count + len(new), 0) :], *new]


@dataclass(frozen=True)
class Token:
    """One word that was said. How likely it was is what the model thought, before any rule and any dice."""

    id: int
    log_probability: float
    rank: int
    """1 for the likeliest."""
    top: tuple[tuple[int, float], ...] = ()
    """The likeliest ids there were and their log-probabilities, best first, as many as were asked for."""
    guessed: bool = False
    """Was it guessed ahead, and found right?"""


@dataclass(frozen=True)
class Answer:
    """What one sequence was continued with."""

    tokens: list[Token]
    """Without the end."""
    reason: Reason
    end: Token | None = None
    """What ended it, where an end was said."""
    text: str | None = field(default=None)
    """Up to the stop string, where there was one to listen for."""

    @property
    def ids(self) -> list[int]:
        return [token.id for token in self.tokens]

    @property
    def log_probability(self) -> float:
        """Of all that was said, its end included."""
        ended = 0.0 if self.end is None else self.end.log_probability
        return sum(token.log_probability for token in self.tokens) + ended
