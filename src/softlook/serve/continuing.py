"""Decoder-only models: sequences join and leave between any two words."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from softlook.decode import Continuing
from softlook.ops.masks import padding
from softlook.serve.asking import Ticket
from softlook.serve.desks import said
from softlook.serve.slots import Slots

CHUNK = 512
"""Tokens of prompts that are read at a turn, so that whoever is under way does not wait for long."""


@dataclass
class Reading:
    """Prompts that are being read, filled up on the left. Those that are alike are read once."""

    tickets: list[Ticket]
    speaker: Continuing
    ids: Tensor
    lengths: Tensor
    rows: list[int]
    """Which row each ticket's prompt is."""
    done: int = 0

    def turn(self) -> Tensor | None:
        """Read on; the scores behind the last words, once all is read."""
        first, width = self.done == 0, self.ids.shape[1]
        stop = min(self.done + max(CHUNK // len(self.ids), 1), width)
        ragged = first and int(self.lengths.min()) < width
        scores = self.speaker.next(self.ids[:, self.done : stop], self._shifted(stop) if ragged else None)
        self.done = stop
        return scores if stop == width else None

    def _shifted(self, stop: int) -> Tensor:
        """How many of the first columns count: the filling is all there, and perhaps nothing else."""
        return self.lengths - (self.ids.shape[1] - stop)


class ContinuingDesk:
    """A ragged batch of a GPT or a Llama."""

    patience = 0.0

    def __init__(self, model: Any, *, rows: int = 64, places: int = 1 << 20) -> None:
        self.model, self.most, self.places = model, rows, places
        self.slots, self.going, self.readings = Slots(), list[Ticket](), list[Reading]()
        self.device = next(model.parameters()).device

    @property
    def tickets(self) -> list[Ticket]:
        return [*self.going, *(ticket for reading in self.readings for ticket in reading.tickets)]

    def has_room(self, ticket: Ticket, beside: Sequence[Ticket]) -> bool:
        """Rows are as wide as the longest; one that is alone always has room."""
        others = [*self.tickets, *beside]
        widest = max(one.ask.places for one in (*others, ticket))
        return not others or (len(others) < self.most and (len(others) + 1) * widest <= self.places)

    def join(self, tickets: Sequence[Ticket]) -> None:
        """Prompts of about the same length are read together."""
        for some in alike(tickets):
            prompts = list(dict.fromkeys(ticket.ask.prompt for ticket in some))
            longest = max(map(len, prompts))
            ids = [[*[0] * (longest - len(prompt)), *prompt] for prompt in prompts]
            self.readings.append(
                Reading(
                    list(some),
                    Continuing(self.model),
                    torch.tensor(ids, device=self.device),
                    torch.tensor([len(prompt) for prompt in prompts], device=self.device),
                    [prompts.index(ticket.ask.prompt) for ticket in some],
                )
            )

    def turn(self) -> None:
        self._drop()
        if self.readings:
            self._read()
        if self.going:
            self._say()

    def clear(self) -> None:
        self.slots, self.going, self.readings = Slots(), [], []

    def _drop(self) -> None:
        """Whoever has gone away is not worked for."""
        self._keep([place for place, ticket in enumerate(self.going) if not ticket.cancelled])
        self.readings = [one for one in self.readings if not all(ticket.cancelled for ticket in one.tickets)]

    def _read(self) -> None:
        reading = self.readings[0]
        scores = reading.turn()
        if scores is None:
            return
        self.readings.pop(0)
        going = said(scores[torch.tensor(reading.rows, device=self.device)], reading.tickets)
        if going:
            rows = [reading.rows[place] for place in going]
            reading.speaker.memory.select(torch.tensor(rows, device=self.device))
            self.slots.join(reading.speaker.memory, reading.lengths[torch.tensor(rows, device=self.device)].tolist())
            self.going += [reading.tickets[place] for place in going]

    def _say(self) -> None:
        """One word of each."""
        ids = torch.tensor([ticket.row.new[-1:] for ticket in self.going], device=self.device)
        self.slots.step()
        lengths = torch.tensor(self.slots.lengths, device=self.device)
        even = min(self.slots.lengths) == self.slots.width
        mask = None if even else padding(lengths, left_of=self.slots.width)
        scores = self.model(ids, memory=self.slots, mask=mask, positions=lengths[:, None] - 1)
        self._keep(said(scores[:, -1], self.going))

    def _keep(self, places: Sequence[int]) -> None:
        """Only these go on. From behind, for the last row takes the place of one that leaves."""
        staying = set(places)
        for place in reversed(range(len(self.going))):
            if place not in staying:
                self.slots.leave(place)
                self.going[place] = self.going[-1]
                self.going.pop()


def alike(tickets: Sequence[Ticket]) -> list[list[Ticket]]:
    """By the length of what is read: none is filled up to more than about twice its own."""
    groups: list[list[Ticket]] = []
    for ticket in sorted(tickets, key=lambda ticket: -read(ticket)):
        if groups and read(groups[-1][0]) <= 2 * read(ticket) + 16 and (len(groups[-1]) + 1) * read(ticket) <= 4096:
            groups[-1].append(ticket)
        else:
            groups.append([ticket])
    return groups


def read(ticket: Ticket) -> int:
    """Tokens that are read before the first word is said."""
    return len(ticket.ask.prompt if ticket.ask.source is None else ticket.ask.source)
