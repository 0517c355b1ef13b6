"""One step: from the scores of a model to the words that are said."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from softlook.base.errors import ConfigError, WeightsError
from softlook.decode.picking import Pick
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

    def said(self) -> Said:
        """What there is so far."""
        return Said(self.prompt, tuple(self.new), self.number)

    def take(self, token: Token, ends: frozenset[int]) -> None:
        """One word more, or the end."""
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
    """The word that each sequence goes on with, by the rules and the pick; its likelihood is the model's own."""
    scores = scores.float()
    ruled = scores
    for rule in asked.rules:
        ruled = rule(ruled, said)
    if asked.rules:
        _leave_something(ruled, said)
    return as_tokens(told(scores, asked.pick(ruled, said), asked.top))


class Told(NamedTuple):
    """What there is to tell of words that were chosen, (N,) each; and of the likeliest there were, (N, top)."""

    ids: Int[Tensor, " N"]
    chances: Float[Tensor, " N"]
    """Their log-probabilities."""
    ranks: Int[Tensor, " N"]
    top_ids: Int[Tensor, "N top"]
    top_chances: Float[Tensor, "N top"]


def told(scores: Float[Tensor, "N V"], ids: Int[Tensor, " N"], top: int) -> Told:
    """How likely the words are by the model alone."""
    own = scores.log_softmax(-1)
    found = own.gather(1, ids[:, None])
    best = own.topk(min(top, own.shape[-1]))
    return Told(ids, found[:, 0], (own > found).sum(1) + 1, best.indices, best.values)


def as_tokens(told: Told) -> list[Token]:
    """The same as plain values."""
    ids, chances, ranks, top_ids, top_chances = (part.tolist() for part in told)
    if any(chance != chance for chance in chances):
        raise WeightsError("the model's scores are no numbers (NaN). Its weights are broken, or too large for its type")
    tops = (tuple(zip(*top, strict=True)) for top in zip(top_ids, top_chances, strict=True))
    return [Token(*one) for one in zip(ids, chances, ranks, tops, strict=True)]


def _leave_something(ruled: Tensor, said: Sequence[Said]) -> None:
    silent = (ruled.amax(-1) == -torch.inf).nonzero()[:, 0].tolist()
    if silent:
        one = said[silent[0]]
        raise ConfigError(
            f"the rules leave nothing to be said as word {len(one.new) + 1} of sequence {one.number}, "
            f"after {one.ids[-8:]}. Allow an end there, or fewer rules"
        )
