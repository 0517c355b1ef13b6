"""One step: from the scores of a model to the words that are said."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from softlook.decode.picking import Pick
from softlook.decode.row_errors import LogitsError, NoTokenLeftError, RowError, raised_for
from softlook.decode.rules import Rule
from softlook.decode.said import Reason, Said, Token
from softlook.decode.stopping import Listening


@dataclass(frozen=True)
class Asked:
    """How words are chosen, and what ends a sequence."""

    pick: Pick
    rules: tuple[Rule, ...]
    end: frozenset[int]
    top: int
    """How many of the likeliest words are told with each that is said."""


@dataclass
class Row:
    """One sequence, until it is over."""

    prompt: list[int]
    number: int
    limit: int
    """The most new words."""
    listening: Listening | None = None
    tokens: list[Token] = field(default_factory=list)
    new: list[int] = field(default_factory=list)
    end: Token | None = None
    reason: Reason | None = None
    error: RowError | None = None
    """Why no token could be chosen, where that ended it."""

    @property
    def going(self) -> bool:
        """Is there more to come?"""
        return self.reason is None and self.error is None

    def said(self) -> Said:
        """What there is so far."""
        return Said(self.prompt, tuple(self.new), self.number)

    def take(self, token: Token | RowError, ends: frozenset[int]) -> None:
        """One word more, the end, or why there is none."""
        if isinstance(token, RowError):
            self.error = token
            return
        if token.id in ends:
            self.end, self.reason = token, "end"
            return
        self.tokens.append(token)
        self.new.append(token.id)
        if self.listening is not None:
            self.listening.push(token.id)
        if self.listening is not None and self.listening.stopped:
            self.reason = "stop"
        elif len(self.new) == self.limit:
            self.reason = "length"


def chosen(scores: Float[Tensor, "N V"], said: Sequence[Said], asked: Asked) -> list[Token]:
    """The tokens that `choices` chooses; an error where any row has none, of which `rows` are the places that failed.

    The same arguments without those rows choose the same tokens for all others.
    """
    found = choices(scores, said, asked)
    errors = {place: one for place, one in enumerate(found) if isinstance(one, RowError)}
    if errors:
        raise raised_for(errors, found)
    return [one for one in found if isinstance(one, Token)]


def choices(scores: Float[Tensor, "N V"], said: Sequence[Said], asked: Asked) -> list[Token | RowError]:
    """The token that each sequence goes on with, by the rules and the pick; its likelihood is the model's own.

    Rows are checked before anything is drawn: one whose logits are no distribution, or to which the rules leave no
    token, gets an error in its place, and changes nothing for the others.
    """
    scores = scores.float()
    own = scores.log_softmax(-1)
    errors: dict[int, RowError] = {}
    for place in _places(own[:, 0].isnan()):  # one NaN, one +inf, or -inf throughout makes the whole row NaN
        errors[place] = LogitsError.of([said[place].number], len(said[place].new) + 1)
    ruled = scores = _without(scores, errors)
    for rule in asked.rules:
        ruled = rule(ruled, said)
    if asked.rules:
        ruled = _checked(ruled, said, errors)
    tokens = as_tokens(told(scores.log_softmax(-1) if errors else own, asked.pick(ruled, said), asked.top))
    return [errors.get(place, token) for place, token in enumerate(tokens)]


class Told(NamedTuple):
    """What there is to tell of words that were chosen, (N,) each; and of the likeliest there were, (N, top)."""

    ids: Int[Tensor, " N"]
    chances: Float[Tensor, " N"]
    """Their log-probabilities; NaN where the logits are no distribution."""
    ranks: Int[Tensor, " N"]
    top_ids: Int[Tensor, "N top"]
    top_chances: Float[Tensor, "N top"]


def told(own: Float[Tensor, "N V"], ids: Int[Tensor, " N"], top: int) -> Told:
    """How likely the words are, by the model's own log-probabilities."""
    found = own.gather(1, ids[:, None])
    best = own.topk(min(top, own.shape[-1]))
    return Told(ids, found[:, 0], (own > found).sum(1) + 1, best.indices, best.values)


def as_tokens(told: Told) -> list[Token]:
    """The same as plain values."""
    ids, chances, ranks, top_ids, top_chances = (part.tolist() for part in told)
    tops = (tuple(zip(*top, strict=True)) for top in zip(top_ids, top_chances, strict=True))
    return [Token(*one) for one in zip(ids, chances, ranks, tops, strict=True)]


def _checked(ruled: Tensor, said: Sequence[Said], errors: dict[int, RowError]) -> Tensor:
    """What rules made of logits, where it is a distribution; of other rows, why it is none."""
    for place in _places(~ruled.amax(-1).isfinite()):
        errors.setdefault(place, _ruled_out(ruled[place], said[place]))
    return _without(ruled, errors)


def _without(scores: Tensor, errors: dict[int, RowError]) -> Tensor:
    """The same with zeros in rows that failed, so that the others can be worked on with them."""
    if not errors:
        return scores
    return scores.index_fill(0, torch.tensor(sorted(errors), device=scores.device), 0.0)


def _places(marked: Bool[Tensor, " N"]) -> list[int]:
    return [place for place, is_marked in enumerate(marked.tolist()) if is_marked]


def _ruled_out(ruled: Tensor, one: Said) -> NoTokenLeftError:
    if bool(ruled.amax() == -torch.inf):
        what, advice = "leave nothing to be said", "Allow an end there, or fewer rules"
    else:
        what, advice = (
            "make NaN or infinity of logits",
            "Rules return finite scores, or -inf for a token that is ruled out",
        )
    return NoTokenLeftError(
        f"the rules {what} as word {len(one.new) + 1} of sequence {one.number}, after {one.ids[-8:]}. {advice}",
        [one.number],
    )
