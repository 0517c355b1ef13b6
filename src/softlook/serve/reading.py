"""Encoders: texts that come within a few milliseconds of each other are read together."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from softlook.serve.asking import Ticket
from softlook.serve.continuing import alike

Ask = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Ids (B, T), where there is a token, and which text it is of, 0 or 1 -> a row of numbers for each."""


class ReadingDesk:
    """A classifier, or whatever makes one vector of a text."""

    patience = 0.003

    def __init__(self, model: Any, ask: Ask, *, rows: int = 64, places: int = 1 << 15) -> None:
        self.ask, self.most, self.places = ask, rows, places
        self.waiting: list[list[Ticket]] = []
        self.device = next(model.parameters()).device

    @property
    def tickets(self) -> list[Ticket]:
        return [ticket for some in self.waiting for ticket in some]

    def has_room(self, ticket: Ticket, beside: Sequence[Ticket]) -> bool:
        others = [*self.tickets, *beside]
        widest = max(len(one.ask.prompt) for one in (*others, ticket))
        return not others or (len(others) < self.most and (len(others) + 1) * widest <= self.places)

    def join(self, tickets: Sequence[Ticket]) -> None:
        self.waiting += alike(tickets)

    def turn(self) -> None:
        """One batch of texts, wholly."""
        if not self.waiting:
            return
        tickets = [ticket for ticket in self.waiting[0] if not ticket.cancelled]
        if tickets:
            rows = [ticket.ask.prompt for ticket in tickets]
            longest = max(map(len, rows))
            ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows], device=self.device)
            places = torch.arange(longest, device=self.device)
            present = places < torch.tensor([[len(row)] for row in rows], device=self.device)
            begins = [longest if ticket.ask.second is None else ticket.ask.second for ticket in tickets]
            second = (places >= torch.tensor(begins, device=self.device)[:, None]) & present
            found = self.ask(ids, present, second.long()).float().cpu()
            for ticket, numbers in zip(tickets, found, strict=True):
                ticket.answer(numbers.clone())
        self.waiting.pop(0)

    def clear(self) -> None:
        self.waiting = []
