"""What a beam search keeps: candidates for one word more, and the whole sequences that were found."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from softlook.base.errors import ConfigError
from softlook.decode.outlook import Outlook
from softlook.decode.penalties import LengthPenalty

EarlyStopping = Literal[True, False, "never"]
"""When a search is over that has found as many whole sequences as there are beams, as in Hugging Face's `generate`:
at once; when none under way is better by its present length; or only when nothing better can come."""


@dataclass(frozen=True, order=True)
class Hypothesis:
    """A whole sequence: one that reached its end, or filled all the room there was."""

    score: float
    """What it is worth: its log-probability and what rules made of it, set against its length and what it left out."""
    ids: list[int] = field(compare=False)
    """Without the end."""
    log_probability: float = field(compare=False)
    """By the model alone, its end included."""
    log_probabilities: list[float] = field(compare=False, default_factory=list)
    """Of each word, and of the end where there is one."""
    end: int | None = field(compare=False, default=None)
    """What ended it; None where there was no more room."""
    alignment: list[list[float]] | None = field(compare=False, default=None)
    """Where the model looked when it said each word, and the end: a weight for each word of the source, if asked."""
    cut: bool = field(compare=False, default=False)
    """Did whoever asked find that it was cut by a length limit, perhaps with an end that was forced there?"""


@dataclass(frozen=True)
class Wanted:
    """All that a search is told, checked."""

    ends: tuple[int, ...]
    longest: int
    shortest: int
    beams: int
    groups: int
    diversity: float
    penalty: LengthPenalty
    coverage: float
    early_stopping: EarlyStopping = "never"

    def __post_init__(self) -> None:
        if self.beams < 1 or self.groups < 1 or self.beams % self.groups:
            raise ConfigError(f"{self.beams} beams cannot be shared evenly by {self.groups} groups")
        if not self.ends or self.longest < 1 or self.shortest > self.longest:
            raise ConfigError(
                f"a search wants an end and 0 <= shortest <= longest, longest at least 1; "
                f"ends {list(self.ends)}, {self.shortest} and {self.longest} came"
            )
        if self.diversity < 0 or self.coverage < 0:
            raise ConfigError(
                f"diversity and coverage are 0 or more; {self.diversity} and {self.coverage} came: "
                "below 0 a search could not tell when it is over"
            )

    @property
    def each(self) -> int:
        """Beams of one group."""
        return self.beams // self.groups

    @property
    def width(self) -> int:
        """Candidates of a group: so many that, were all ends among them, enough others are left."""
        return (1 + len(self.ends)) * self.each


class Found:
    """The whole sequences found by one group for one sequence, and whether anything better can still come."""

    def __init__(self, wanted: Wanted) -> None:
        self.room, self.best = wanted.each, list[Hypothesis]()
        divisors = [wanted.penalty(length) for length in range(1, wanted.longest + 1)]
        if min(divisors) <= 0:
            raise ConfigError(f"a length penalty is above 0 for every length; {min(divisors)} came")
        self.at_once = wanted.early_stopping is True
        self.kindest = [1.0, *divisors]
        """By how many words there are, what the best under way is divided by when it is held against what was found."""
        if wanted.early_stopping == "never":  # by the largest divisor that may still come
            self.kindest = [max(divisors[length:], default=0.0) for length in range(len(divisors) + 1)]

    def add(self, hypothesis: Hypothesis) -> None:
        """Keep it, if it is among the best so many."""
        self.best = sorted([*self.best, hypothesis], reverse=True)[: self.room]

    def is_over(self, best_alive: float, length: int) -> bool:
        """Can no sequence still under way, whatever follows, get among these?

        What a sequence has in all only falls, and nothing is added for what it has not left out. So the best that can
        come of it is not to fall at all, and to be divided by the largest number there is for a greater length. With
        `early_stopping` other than "never" less is asked.
        """
        if best_alive == -torch.inf:
            return True
        if len(self.best) < self.room:
            return False
        return self.at_once or best_alive / self.kindest[length] <= self.best[-1].score


class Candidates(NamedTuple):
    """One word more: ways to go on with each sequence, best first. (N, W) each."""

    totals: Float[Tensor, "N W"]
    beams: Int[Tensor, "N W"]
    """Which beam it goes on from."""
    words: Int[Tensor, "N W"]
    own: Float[Tensor, "N W"]
    """The model's own log-probability of the word."""


class Choice(NamedTuple):
    """What becomes of candidates."""

    kept: Int[Tensor, "N K"]
    """The places of those that go on."""
    scores: Float[Tensor, "N K"]
    """Their totals; minus infinity where there are too few."""
    finished: Bool[Tensor, "N W"]


def candidates(found: Outlook, scores: Float[Tensor, "N K"], width: int) -> Candidates:
    """The best `width` ways to go on, from the best words after each beam."""
    (N, K), W = scores.shape, found.words.shape[-1]
    totals = (scores[:, :, None] + found.scores.view(N, K, W)).flatten(1)
    totals, places = totals.topk(min(width, K * W))
    words, own = (part.reshape(N, K * W).gather(1, places) for part in (found.words, found.own))
    return Candidates(totals, places.div(W, rounding_mode="floor"), words, own)


def choose(found: Candidates, ends: Bool[Tensor, "N W"], room: int, *, last: bool) -> Choice:
    """The best `room` of those that do not end go on. What ends is finished if it is among the best `room` of all.

    Where this is the `last` word that there is room for, everything is whole with it.
    """
    scores, kept = found.totals.masked_fill(ends, -torch.inf).topk(min(room, ends.shape[1]))
    if kept.shape[1] < room:
        lacking = (0, room - kept.shape[1])
        scores = torch.nn.functional.pad(scores, lacking, value=-torch.inf)
        kept = torch.nn.functional.pad(kept, lacking)
    among = torch.arange(ends.shape[1], device=ends.device) < room
    whole = among & found.totals.isfinite()
    return Choice(kept, scores, whole if last else ends & whole)


def best_of(found: Sequence[Found]) -> list[Hypothesis]:
    """What all groups found, best first, and nothing twice."""
    kept: dict[tuple[tuple[int, ...], int | None], Hypothesis] = {}
    for one in sorted((one for group in found for one in group.best), reverse=True):
        kept.setdefault((tuple(one.ids), one.end), one)
    return list(kept.values())
