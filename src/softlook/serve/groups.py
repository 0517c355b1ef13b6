"""Models whose sequences begin together: translators, and decoders that remember in a way of their own.

Those that wait when a group begins are its members. They leave one by one; several groups take turns.
"""

from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

from softlook.decode import Speaker, speaker_for
from softlook.decode.rows import filled
from softlook.serve.asking import Ticket
from softlook.serve.continuing import alike
from softlook.serve.desks import said
from softlook.serve.searching import LookGroup, SearchGroup


class WordGroup:
    """Sequences that began together. What they are asked with is read at the first turn."""

    def __init__(self, model: Any, tickets: Sequence[Ticket]) -> None:
        self.model, self.tickets, self.speaker = model, list(tickets), None
        self.device = next(model.parameters()).device

    def turn(self) -> "list[WordGroup]":
        """One word of each."""
        if self.speaker is None:
            self.speaker = self._speaker()
            scores = self.speaker.next(*self._start())
        else:
            scores = self.speaker.next(torch.tensor([ticket.row.new[-1:] for ticket in self.tickets]).to(self.device))
        going = said(scores, self.tickets)
        if going and len(going) < len(self.tickets):
            self.speaker.select(torch.tensor(going, device=self.device))
        self.tickets = [self.tickets[place] for place in going]
        return [self] if going else []

    def _speaker(self) -> Speaker:
        sources = [ticket.ask.source for ticket in self.tickets if ticket.ask.source is not None]
        return speaker_for(self.model, *filled(sources, self.device)) if sources else speaker_for(self.model)

    def _start(self) -> tuple[Tensor, Tensor | None]:
        prompts = [ticket.ask.prompt for ticket in self.tickets]
        longest = max(map(len, prompts))
        ids = torch.tensor([[*[0] * (longest - len(prompt)), *prompt] for prompt in prompts], device=self.device)
        lengths = torch.tensor([len(prompt) for prompt in prompts], device=self.device)
        return ids, None if int(lengths.min()) == longest else lengths


Group = WordGroup | SearchGroup | LookGroup


class GroupDesk:
    """Several groups, each of which says a word at a turn."""

    patience = 0.002

    def __init__(self, model: Any, *, rows: int = 64, places: int = 1 << 20) -> None:
        self.model, self.most, self.places = model, rows, places
        self.groups: list[Group] = []

    @property
    def tickets(self) -> list[Ticket]:
        return [ticket for group in self.groups for ticket in group.tickets]

    def has_room(self, ticket: Ticket, beside: Sequence[Ticket]) -> bool:
        """Searches have as many rows of their own, and at most half of the memory: others always have the rest."""
        searches = ticket.ask.search is not None
        everybody = [*self.tickets, *beside]
        others = [one for one in everybody if (one.ask.search is not None) is searches]
        rows = ticket.ask.ways + sum(one.ask.ways for one in others)
        places = self.places // 2 if searches else self.places - sum(map(_size, everybody)) + sum(map(_size, others))
        widest = max(one.ask.places + len(one.ask.source or ()) for one in (*others, ticket))
        return not others or (rows <= self.most and rows * widest <= places)

    def join(self, tickets: Sequence[Ticket]) -> None:
        kinds: dict[Hashable, list[Ticket]] = {}
        for ticket in tickets:
            kinds.setdefault(_kind(ticket), []).append(ticket)
        for some in kinds.values():
            ask = some[0].ask
            make = LookGroup if ask.looks else WordGroup if ask.search is None else SearchGroup
            self.groups += [make(self.model, together) for together in alike(some)]

    def turn(self) -> None:
        """A word of each group that somebody waits for."""
        left = [group for group in self.groups if not all(ticket.cancelled for ticket in group.tickets)]
        self.groups = left
        self.groups = [going for group in left for going in group.turn()]

    def clear(self) -> None:
        self.groups = []


def _size(ticket: Ticket) -> int:
    """Places that it may take up."""
    return ticket.ask.ways * (ticket.ask.places + len(ticket.ask.source or ()))


def _kind(ticket: Ticket) -> Hashable:
    """Those of one kind go on together: searches that want the same, and all that are said word by word."""
    ask = ticket.ask
    if ask.search is None:
        return ask.looks
    source = ask.source if ask.habits is not None and ask.habits.reads_source else None
    return ask.search, ask.limit, ask.end, ask.habits, len(ask.prompt), source
