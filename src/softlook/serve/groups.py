"""Models whose sequences begin together: translators, and decoders that remember in a way of their own.

Those that wait when a group begins are its members. They leave one by one; several groups take turns.
"""

from collections.abc import Hashable, Sequence
from typing import Any

import torch

from softlook.decode import Speaker, speaker_for
from softlook.decode.rows import filled, filled_left
from softlook.serve.asking import Ticket
from softlook.serve.continuing import alike
from softlook.serve.desks import GroupedDesk, said
from softlook.serve.recovery import Group
from softlook.serve.searching import LookGroup, SearchGroup


class WordGroup:
    """Sequences that began together. What they are asked with is read at the first turn."""

    def __init__(self, model: Any, tickets: Sequence[Ticket]) -> None:
        self.model, self.tickets = model, list(tickets)
        self.speaker: Speaker | None = None
        self.device = next(model.parameters()).device

    def turn(self) -> "list[WordGroup]":
        """One word of each."""
        if all(ticket.cancelled for ticket in self.tickets):
            return []
        if self.speaker is None:
            self.speaker = self._speaker()
            scores = self.speaker.next(*filled_left([ticket.prefix for ticket in self.tickets], self.device))
        else:
            scores = self.speaker.next(torch.tensor([ticket.row.new[-1:] for ticket in self.tickets]).to(self.device))
        going = said(scores, self.tickets)
        if going and len(going) < len(self.tickets):
            self.speaker.select(torch.tensor(going, device=self.device))
        self.tickets = [self.tickets[place] for place in going]
        return [self] if going else []

    def restart(self, tickets: Sequence[Ticket]) -> "WordGroup":
        return WordGroup(self.model, tickets)

    def release(self) -> None:
        self.tickets, self.speaker = [], None

    def _speaker(self) -> Speaker:
        sources = [ticket.ask.source for ticket in self.tickets if ticket.ask.source is not None]
        return speaker_for(self.model, *filled(sources, self.device)) if sources else speaker_for(self.model)


class GroupDesk(GroupedDesk):
    """Several groups, each of which says a word at a turn."""

    patience = 0.002

    def __init__(self, model: Any, *, rows: int = 64, places: int = 1 << 20) -> None:
        super().__init__(rows, places)
        self.model = model

    def has_room(self, ticket: Ticket, beside: Sequence[Ticket]) -> bool:
        """Searches have as many rows of their own, and at most half of the memory: others always have the rest."""
        searches = ticket.ask.search is not None
        everybody = [*self.tickets, *beside]
        others = [one for one in everybody if (one.ask.search is not None) is searches]
        rows = ticket.ask.ways + sum(one.ask.ways for one in others)
        taken = sum(map(_size, others if searches else everybody)) + _size(ticket)
        return not others or (rows <= self.most and taken <= (self.room // 2 if searches else self.room))

    def join(self, tickets: Sequence[Ticket]) -> None:
        kinds: dict[Hashable, list[Ticket]] = {}
        for ticket in tickets:
            kinds.setdefault(_kind(ticket), []).append(ticket)
        groups: list[Group] = []
        for some in kinds.values():
            ask = some[0].ask
            make = LookGroup if ask.looks else WordGroup if ask.search is None else SearchGroup
            groups += [make(self.model, together) for together in alike(some)]
        self.groups += groups

    def due(self) -> Sequence[Group]:
        """All of them."""
        return self.groups

    def used(self) -> int:
        return sum(map(_size, self.tickets))


def _size(ticket: Ticket) -> int:
    """Places that it may take up."""
    return ticket.ask.ways * (ticket.ask.places + len(ticket.ask.source or ()))


def _kind(ticket: Ticket) -> Hashable:
    """Those of one kind go on together: searches that want the same, and all that are said word by word.

    Those with a source have as many tokens each, for a recurrent decoder takes steps together.
    """
    ask = ticket.ask
    if ask.search is None:
        return (ask.looks, None if ask.looks or ask.source is None else len(ticket.prefix))
    source = ask.source if ask.habits is not None and ask.habits.reads_source else None
    return ask.search, ask.limit, ask.end, ask.habits, len(ask.prompt), source
