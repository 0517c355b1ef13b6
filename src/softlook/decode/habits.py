"""How a model's answers are found where nobody says how: as it was tested, or as other people's files say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from softlook.decode.rules import Rule, end_at, forbid, forced_prefix, least, no_repeats, repetition_penalty
from softlook.decode.said import Said, Token
from softlook.decode.search import Hypothesis
from softlook.weights.runs import BEST, SETTINGS, read_sealed

BEAMS, MOST_BEAMS = 5, 256
"""Beginnings that are kept at once, where nobody says how many; and at most."""
MOST_WORDS = 10_000
"""Forbidden words in other people's files that are heeded; there is no good reason for more."""


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
    last: int | None = None
    """What ends an answer for which there is no more room."""
    anew: bool = False
    """Do the chances that rules leave sum to one again?"""

    @property
    def bound(self) -> bool:
        """Are there any rules?"""
        return bool(self.rules(1))

    def rules(self, longest: int, ends: Sequence[int] = ()) -> tuple[Rule, ...]:
        """What is done to scores, in the order of Hugging Face's, for answers of at most so many words.

        >>> [len(Habits().rules(9)), len(Habits(never=((3,),), last=2).rules(9))]
        [0, 2]
        """
        found = (
            (self.repetition != 1, lambda: repetition_penalty(self.repetition)),
            (self.repeats > 0, lambda: no_repeats(self.repeats)),
            (bool(self.never), lambda: forbid(self.never)),
            (self.shortest > 0, lambda: least(min(self.shortest, longest - 1), ends)),
            (self.first is not None, lambda: forced_prefix([self.first or 0])),
            (self.last is not None, lambda: end_at(longest, self.last or 0)),
            (self.anew, lambda: _anew),
        )
        return tuple(make() for wanted, make in found if wanted)

    def room(self, source: int) -> int:
        """Words that an answer may have, by the length of its source alone, so that neighbours do not change it."""
        return usual(source) if self.longest is None else max(min(usual(source), self.longest), 1)


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


def habits_in(folder: Path, theirs: Mapping[str, Any]) -> Habits:
    """The habits of what lies in a folder: how a run was tested, or what Hugging Face's files say."""
    if theirs:
        return told_by(theirs)
    kept = read_sealed(folder / SETTINGS) if (folder / BEST).is_file() and (folder / SETTINGS).is_file() else {}
    values = kept.get("values")
    values = values if isinstance(values, dict) else {}
    beams = _whole(values, "decode.beams") or BEAMS
    return Habits(beams=min(beams, MOST_BEAMS), penalty=_number(values, "decode.penalty", 1.0))


def told_by(theirs: Mapping[str, Any]) -> Habits:
    """What generation_config.json says, as far as softlook does it too; what makes no sense is as though not said.

    >>> told_by({"num_beams": 4, "bad_words_ids": [[9]], "forced_eos_token_id": 0, "max_length": 512}).never
    ((9,),)
    """
    longest = _whole(theirs, "max_length")
    return Habits(
        beams=min(_whole(theirs, "num_beams") or 1, MOST_BEAMS),
        penalty=_number(theirs, "length_penalty", 1.0),
        repetition=_number(theirs, "repetition_penalty", 1.0, least=0.1),
        repeats=_whole(theirs, "no_repeat_ngram_size"),
        never=_words(theirs.get("bad_words_ids")),
        shortest=max(_whole(theirs, "min_length") - 1, 0),  # theirs count what an answer begins with
        longest=longest - 1 if longest > 1 else None,
        first=_id(theirs.get("forced_bos_token_id")),
        last=_id(theirs.get("forced_eos_token_id")),
        anew=theirs.get("renormalize_logits") is True,
    )


def _anew(scores: Tensor, said: Sequence[Said]) -> Tensor:
    return scores.log_softmax(-1)


def _whole(told: Mapping[str, Any], name: str) -> int:
    value = told.get(name)
    return value if type(value) is int and value > 0 else 0


def _number(told: Mapping[str, Any], name: str, usual: float, least: float = -10.0) -> float:
    value: Any = told.get(name)
    return float(value) if type(value) in (int, float) and least <= value <= 10 else usual


def _id(value: Any) -> int | None:
    value = value[0] if isinstance(value, list) and value else value
    return value if type(value) is int and value >= 0 else None


def _words(told: Any) -> tuple[tuple[int, ...], ...]:
    rows = told[:MOST_WORDS] if isinstance(told, list) else []
    return tuple(tuple(row) for row in rows if isinstance(row, list) and row and all(type(id) is int for id in row))
