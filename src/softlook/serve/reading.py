"""Encoders: texts that come within a few milliseconds of each other are read together."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from softlook.decode.rows import filled
from softlook.serve.asking import Ticket
from softlook.serve.continuing import alike
from softlook.serve.desks import GroupedDesk
from softlook.serve.recovery import NonFiniteError

Ask = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Ids (B, T), where there is a token, and which text it is of, 0 or 1 -> a row of numbers for each."""


class TextGroup:
    """Texts that are read together."""

    def __init__(self, ask: Ask, device: torch.device, tickets: Sequence[Ticket]) -> None:
        self.ask, self.device, self.tickets = ask, device, list(tickets)

    def turn(self) -> "list[TextGroup]":
        """All of them, wholly."""
        tickets = [ticket for ticket in self.tickets if not ticket.cancelled]
        if not tickets:
            return []
        rows = [ticket.ask.prompt for ticket in tickets]
        ids, present = filled(rows, self.device)
        longest = ids.shape[1]
        begins = [longest if ticket.ask.second is None else ticket.ask.second for ticket in tickets]
        places = torch.arange(longest, device=self.device)
        second = (places >= torch.tensor(begins, device=self.device)[:, None]) & present
        found = self.ask(ids, present, second.long()).float().cpu()
        for ticket, numbers in zip(tickets, found, strict=True):
            if numbers.isfinite().all():
                ticket.answer(numbers.clone())
            else:
                ticket.fail(NonFiniteError("its answer to this text"))
        return []

    def restart(self, tickets: Sequence[Ticket]) -> "TextGroup":
        return TextGroup(self.ask, self.device, tickets)

    def release(self) -> None:
        self.tickets = []


class ReadingDesk(GroupedDesk):
    """A classifier, or whatever makes one vector of a text. One batch of texts is a turn."""

    patience = 0.003

    def __init__(self, model: Any, ask: Ask, *, rows: int = 64, places: int = 1 << 15) -> None:
        super().__init__(rows, places)
        self.ask, self.device = ask, next(model.parameters()).device

    def has_room(self, ticket: Ticket, beside: Sequence[Ticket]) -> bool:
        others = [*self.tickets, *beside]
        taken = sum(len(one.ask.prompt) for one in (*others, ticket))
        return not others or (len(others) < self.most and taken <= self.room)

    def join(self, tickets: Sequence[Ticket]) -> None:
        self.groups += [TextGroup(self.ask, self.device, some) for some in alike(tickets)]

    def used(self) -> int:
        return sum(len(ticket.ask.prompt) for ticket in self.tickets)
