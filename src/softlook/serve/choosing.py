"""The next word of many sequences at once, each by a manner and dice of its own."""

import logging
from collections.abc import Hashable, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from softlook.decode import Pick, Said, Token, likeliest, sample
from softlook.decode.choosing import Asked, chosen
from softlook.decode.picking import Sample, dice, drawn
from softlook.serve.asking import Manner, Ticket
from softlook.serve.recovery import NonFiniteError, explained

log = logging.getLogger("softlook.serve")
LIKELIEST = likeliest()


def choose(scores: Float[Tensor, "N V"], tickets: Sequence[Ticket]) -> list[Token | Exception]:
    """A word for each, as it would be chosen alone; where one cannot be, why. One that fails spoils no other.

    Logits that cannot be drawn from fail before anything is drawn: on a GPU an index out of range would end everything.
    """
    found: list[Token | Exception] = [NonFiniteError("the scores of tokens")] * len(tickets)
    manners: dict[Hashable, list[int]] = {}
    finite = scores.amax(-1).isfinite().tolist()  # NaN, +inf, and nothing but -inf all show in the maximum
    for place, ticket in enumerate(tickets):
        if finite[place]:
            manners.setdefault(_kind(ticket), []).append(place)
    for places in manners.values():
        whole = len(places) == len(tickets)
        own = scores if whole else scores[torch.tensor(places, device=scores.device)]
        some = [tickets[place] for place in places]
        for place, token in zip(places, _alike(own, some), strict=True):
            found[place] = token
    return found


def pick_of(manner: Manner, seed: int) -> Pick:
    """The pick that chooses for a sequence alone."""
    if not manner.drawn:
        return LIKELIEST
    return sample(manner.temperature, manner.top_k, manner.top_p, manner.min_p, seed)


def _kind(ticket: Ticket) -> Hashable:
    """Those of one kind are chosen for together."""
    ask = ticket.ask
    if ask.habits is None:
        return ask.manner
    return ask.manner, ask.habits, ask.limit, ask.end, ask.source if ask.habits.reads_source else None


def _alike(scores: Tensor, tickets: Sequence[Ticket]) -> Sequence[Token | Exception]:
    try:
        return _chosen(scores, tickets)
    except Exception as fault:  # whatever it is, it is about one of them: each is asked by itself
        if len(tickets) == 1:
            log.error("no token could be chosen", exc_info=fault)
            return [explained(fault)]
        return [_alike(scores[i : i + 1], [ticket])[0] for i, ticket in enumerate(tickets)]


def _chosen(scores: Tensor, tickets: Sequence[Ticket]) -> list[Token]:
    manner = tickets[0].ask.manner
    said = [ticket.row.said() for ticket in tickets]
    pick: Pick = LIKELIEST
    if manner.drawn:
        pick = _Dice(Sample(manner.temperature, manner.top_k, manner.top_p, manner.min_p), tickets)
    return chosen(scores, said, Asked(pick, tickets[0].ask.rules(), frozenset(), manner.top))


class _Dice:
    """A sample for which every sequence brings its own seed."""

    def __init__(self, sample: Sample, tickets: Sequence[Ticket]) -> None:
        self.sample, self.seeds = replace(sample, seed=None), [ticket.ask.seed for ticket in tickets]

    def __call__(self, scores: Float[Tensor, "N V"], said: Sequence[Said]) -> Tensor:
        thrown = [dice(seed, one.number, len(one.new)) for seed, one in zip(self.seeds, said, strict=True)]
        return drawn(self.sample.warped(scores), torch.tensor(thrown, dtype=torch.float64, device=scores.device))
