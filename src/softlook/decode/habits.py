"""How a model's answers are found where nobody says how: as it was tested, or as other people's files say."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from softlook.base.errors import ConfigError
from softlook.decode.rules import (
    Rule,
    decaying_end,
    end_at,
    forbid,
    forced_prefix,
    least,
    no_repeats,
    no_source_repeats,
    repetition_penalty,
    source_repetition_penalty,
    suppress,
)
from softlook.decode.said import Said, Token
from softlook.decode.search import EarlyStopping, Hypothesis

SourceOf = Callable[[Said], Sequence[int]]
"""What was read for a sequence."""
BEAMS, MOST_BEAMS = 5, 256
"""Beginnings that are kept at once, where nobody says how many; and at most."""
MOST_WORDS = 10_000
"""Forbidden words in other people's files; there is no good reason for more."""


@dataclass(frozen=True)
class Habits:
    """Beams, and rules that a translator keeps to."""

    beams: int = BEAMS
    penalty: float = 1.0
    """The power of its length by which the log-probability of an answer is divided."""
    repetition: float = 1.0
    repeats: int = 0
    """So many words in a row do not come twice; 0 where they may."""
    never: tuple[tuple[int, ...], ...] = ()
    """Words that are not said."""
    shortest: int = 0
    """Words before an end."""
    longest: int | None = None
    """Words with it, at most."""
    first: int | None = None
    """What every answer begins with."""
    last: tuple[int, ...] = ()
    """What ends an answer for which there is no more room."""
    anew: bool = False
    """Do the chances that rules leave sum to one again?"""
    suppressed: tuple[int, ...] = ()
    """Tokens that are not said."""
    suppressed_first: tuple[int, ...] = ()
    """Tokens that are not said first."""
    source_repeats: int = 0
    """So many words in a row of the source are not said; 0 where they may be."""
    source_repetition: float = 1.0
    """Above 1, words of the source are said more."""
    decay: tuple[int, float] | None = None
    """After so many words, an end becomes likelier by a power of this factor."""
    early: EarlyStopping = "never"
    """When a beam search is over."""
    refused: tuple[str, ...] = ()
    """What other people's files ask for and softlook does not do."""

    def check(self, *, searching: bool = False) -> None:
        """An error where something is asked for that softlook does not do.

        `searching`: has the user asked for a beam search? Then a file that would rather draw words has no say.
        """
        refused = [one for one in self.refused if not (searching and one.startswith("do_sample:"))]
        if refused:
            raise ConfigError(
                f"the model's generation config asks for what softlook does not do: {'; '.join(refused)}. "
                "Remove it from generation_config.json, or from config.json where there is none"
                + (", or say how many beams to search with" if refused[0].startswith("do_sample:") else "")
            )

    @property
    def bound(self) -> bool:
        """Are there any rules?"""
        return bool(self.rules(1))

    @property
    def reads_source(self) -> bool:
        """Does any of the rules depend on what was read?"""
        return self.source_repeats > 0 or self.source_repetition != 1

    def rules(self, longest: int, ends: Sequence[int] = (), source_of: SourceOf = lambda said: ()) -> tuple[Rule, ...]:
        """What is done to scores, in the order of Hugging Face's, for answers of at most so many words.

        >>> [len(Habits().rules(9)), len(Habits(never=((3,),), last=(2,)).rules(9))]
        [0, 2]
        """
        never = [word for word in self.never if word not in {(end,) for end in ends}]
        begun = 0 if self.first is None else 1
        found = (
            (self.source_repetition != 1, lambda: source_repetition_penalty(self.source_repetition, source_of)),
            (self.repetition != 1, lambda: repetition_penalty(self.repetition)),
            (self.repeats > 0, lambda: no_repeats(self.repeats)),
            (self.source_repeats > 0, lambda: no_source_repeats(self.source_repeats, source_of)),
            (bool(never), lambda: forbid(never)),
            (self.shortest > 0, lambda: least(self.shortest, ends)),
            (self.first is not None, lambda: forced_prefix([self.first or 0])),
            (bool(self.last), lambda: end_at(longest, self.last)),
            (self.decay is not None, lambda: decaying_end(*(self.decay or (0, 1.0)), ends)),
            (bool(self.suppressed), lambda: suppress(self.suppressed)),
            (bool(self.suppressed_first), lambda: suppress(self.suppressed_first, only=begun)),
            (self.anew, lambda: _anew),
        )
        return tuple(make() for wanted, make in found if wanted)

    def room(self, source: int) -> int:
        """Words that an answer may have, by the length of its source alone, so that neighbours do not change it."""
        return usual(source) if self.longest is None else self.longest

    def is_cut(self, found: Hypothesis, longest: int) -> bool:
        """Did an answer end because there was no more room? An end that is forced there counts as none."""
        return found.end is None or (bool(self.last) and len(found.ids) == longest - 1)


def usual(source: int) -> int:
    """Words that a translation may have, by the length of its source, as while training.

    >>> usual(8), usual(9)
    (24, 36)
    """
    return 12 + 12 * -(-source // 8)


def alone(tokens: Sequence[Token], end: Token | None, penalty: float) -> Hypothesis:
    """What was found without a search, as though there had been one."""
    values = [token.log_probability for token in (*tokens, *([] if end is None else [end]))]
    ids = [token.id for token in tokens]
    return Hypothesis(sum(values) / len(values) ** penalty, ids, sum(values), values, None if end is None else end.id)


def _anew(scores: Tensor, said: Sequence[Said]) -> Tensor:
    nothing = scores.amax(-1, keepdim=True) == -torch.inf  # where rules leave nothing, there is nothing to sum to one
    return torch.where(nothing, scores, scores.log_softmax(-1))
