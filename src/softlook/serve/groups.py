"""Models whose sequences begin together: translators, and decoders that remember in a way of their own.

Those that wait when a group begins are its members. They leave one by one; several groups take turns.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from softlook.decode import Speaker, speaker_for
from softlook.serve.asking import Ticket
from softlook.serve.continuing import alike
from softlook.serve.desks import said


@dataclass
class Group:
    """Sequences that began together. What they are asked with is read at the first turn."""

    tickets: list[Ticket]
    speaker: Speaker | None = None


class GroupDesk:
    """Several groups, each of which says a word at a turn."""

    patience = 0.002

    def __init__(self, model: Any, *, rows: int = 64, places: int = 1 << 20) -> None:
        self.model, self.most, self.places = model, rows, places
        self.groups: list[Group] = []
        self.device = next(model.parameters()).device

    @property
    def tickets(self) -> list[Ticket]:
        return [ticket for group in self.groups for ticket in group.tickets]

    def has_room(self, ticket: Ticket, beside: Sequence[Ticket]) -> bool:
        others = [*self.tickets, *beside]
        widest = max(one.ask.places + len(one.ask.source or ()) for one in (*others, ticket))
        return not others or (len(others) < self.most and (len(others) + 1) * widest <= self.places)

    def join(self, tickets: Sequence[Ticket]) -> None:
        self.groups += [Group(some) for some in alike(tickets)]

    def turn(self) -> None:
        for group in self.groups:
            if all(ticket.cancelled for ticket in group.tickets):
                group.tickets = []
                continue
            self._step(group)
        self.groups = [group for group in self.groups if group.tickets]

    def clear(self) -> None:
        self.groups = []

    def _step(self, group: Group) -> None:
        if group.speaker is None:
            group.speaker = self._speaker(group.tickets)
            scores = group.speaker.next(*self._start(group.tickets))
        else:
            scores = group.speaker.next(torch.tensor([ticket.row.new[-1:] for ticket in group.tickets]).to(self.device))
        going = said(scores, group.tickets)
        if going and len(going) < len(group.tickets):
            group.speaker.select(torch.tensor(going, device=self.device))
        group.tickets = [group.tickets[place] for place in going]

    def _speaker(self, tickets: Sequence[Ticket]) -> Speaker:
        sources = [ticket.ask.source for ticket in tickets if ticket.ask.source is not None]
        if not sources:
            return speaker_for(self.model)
        longest = max(map(len, sources))
        ids = torch.tensor([[*source, *[0] * (longest - len(source))] for source in sources], device=self.device)
        lengths = torch.tensor([[len(source)] for source in sources], device=self.device)
        return speaker_for(self.model, ids, torch.arange(longest, device=self.device) < lengths)

    def _start(self, tickets: Sequence[Ticket]) -> tuple[Tensor, Tensor | None]:
        prompts = [ticket.ask.prompt for ticket in tickets]
        longest = max(map(len, prompts))
        ids = torch.tensor([[*[0] * (longest - len(prompt)), *prompt] for prompt in prompts], device=self.device)
        lengths = torch.tensor([len(prompt) for prompt in prompts], device=self.device)
        return ids, None if int(lengths.min()) == longest else lengths
