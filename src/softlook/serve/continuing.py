"""Decoder-only models: sequences join and leave between any two words."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from softlook.blocks.memory import Memory
from softlook.decode import Continuing
from softlook.decode.rows import filled_left
from softlook.ops.masks import padding
from softlook.serve.asking import Ticket
from softlook.serve.budget import Plan
from softlook.serve.desks import GroupedDesk, said
from softlook.serve.recovery import Group
from softlook.serve.slots import Slots

CHUNK = 512
"""Tokens of prompts that are read at a turn, so that whoever is under way does not wait for long."""


class Batch:
    """Sequences that get a token each at every step, out of one KV cache."""

    def __init__(self, model: Any) -> None:
        self.model, self.slots, self.going = model, Slots(), list[Ticket]()
        self.joining: list[tuple[Memory, list[int], list[Ticket]]] = []
        """Those whose prompts were read: their keys and values, how many of each count, and they themselves."""
        self.device = next(model.parameters()).device

    @property
    def tickets(self) -> list[Ticket]:
        return [*self.going, *(ticket for *_, tickets in self.joining for ticket in tickets)]

    def turn(self) -> "list[Batch]":
        """Whoever has gone leaves, whoever was read joins, and each of them gets a token."""
        self._keep([place for place, ticket in enumerate(self.going) if not ticket.cancelled])
        while self.joining:
            memory, lengths, tickets = self.joining[0]
            self.slots.join(memory, lengths, [ticket.ask.places for ticket in tickets])
            self.going += tickets
            del self.joining[0]
        if self.going:
            self._step()
        return [self] if self.going else []

    def restart(self, tickets: Sequence[Ticket]) -> "Reading":
        """In a batch of their own, for one of them may spoil any batch it is in."""
        return Reading(self.model, tickets, Batch(self.model))

    def release(self) -> None:
        self.slots, self.going, self.joining = Slots(), [], []

    def _step(self) -> None:
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


class Reading:
    """Prompts that are being read, before their sequences join a batch. Those that are alike are read once."""

    def __init__(self, model: Any, tickets: Sequence[Ticket], batch: Batch) -> None:
        self.model, self.tickets, self.batch = model, list(tickets), batch
        self.prefixes = list(dict.fromkeys(ticket.prefix for ticket in tickets))
        self.rows = [self.prefixes.index(ticket.prefix) for ticket in tickets]
        """Which of the prefixes is each ticket's."""
        self.speaker, self.done = Continuing(model), 0
        self.padded: tuple[Tensor, Tensor | None] | None = None

    def turn(self) -> Sequence[Group]:
        """Read on. Once all is read, each takes its first token and joins the batch."""
        if all(ticket.cancelled for ticket in self.tickets):
            return []
        scores = self._read()
        if scores is None:
            return [self]
        going = said(scores[torch.tensor(self.rows, device=scores.device)], self.tickets)
        if not going:
            return []
        rows = [self.rows[place] for place in going]
        self.speaker.memory.select(torch.tensor(rows, device=scores.device))
        lengths = [len(self.prefixes[row]) for row in rows]
        self.batch.joining.append((self.speaker.memory, lengths, [self.tickets[place] for place in going]))
        return [self.batch]

    def restart(self, tickets: Sequence[Ticket]) -> "Reading":
        return Reading(self.model, tickets, Batch(self.model))

    def release(self) -> None:
        self.tickets, self.speaker = [], Continuing(self.model)

    def _read(self) -> Tensor | None:
        """The scores behind the last tokens, once all is read."""
        self.padded = filled_left(self.prefixes, self.batch.device) if self.padded is None else self.padded
        ids, lengths = self.padded
        width = ids.shape[1]
        stop = min(self.done + max(CHUNK // len(ids), 1), width)
        # How many of the first columns count: the padding is all there, and perhaps nothing else.
        shifted = lengths - (width - stop) if self.done == 0 and lengths is not None else None
        scores = self.speaker.next(ids[:, self.done : stop], shifted)
        self.done = stop
        return scores if stop == width else None


class ContinuingDesk(GroupedDesk):
    """A ragged batch of a GPT or a Llama; several, where one would be wider than there is room for."""

    patience = 0.0

    def __init__(self, model: Any, *, rows: int = 64, places: int = 1 << 20) -> None:
        super().__init__(rows, places)
        self.model, self.open = model, [Batch(model)]
        """Batches that others may join."""

    @property
    def readings(self) -> list[Reading]:
        return [group for group in self.groups if isinstance(group, Reading)]

    @property
    def batches(self) -> list[Batch]:
        """Those that are open, and those that began anew after a fault."""
        found = {id(batch): batch for batch in self.open}
        for group in self.groups:
            batch = group.batch if isinstance(group, Reading) else group
            assert isinstance(batch, Batch)
            found.setdefault(id(batch), batch)
        return list(found.values())

    def has_room(self, ticket: Ticket, beside: Sequence[Ticket]) -> bool:
        """One that is alone always has room."""
        others = len(self.tickets) + len(beside)
        if not others or others >= self.most:
            return not others
        plan = self._plan()
        for one in (*beside, ticket):
            plan.add(one.ask.places)
        return plan.used <= self.room

    def join(self, tickets: Sequence[Ticket]) -> None:
        """Prompts of about the same length are read together."""
        plan, batches = self._plan(), list(self.open)
        parts: dict[int, list[Ticket]] = {}
        for ticket in tickets:
            parts.setdefault(plan.add(ticket.ask.places), []).append(ticket)
        batches += [Batch(self.model) for _ in range(len(batches), max(parts) + 1)]
        readings = [Reading(self.model, some, batches[n]) for n, own in parts.items() for some in alike(own)]
        self.open, self.groups = batches, [*self.groups, *readings]

    def due(self) -> Sequence[Group]:
        """A part of the first prompts that wait, and then a token of everybody."""
        self.open = [self.open[0], *(batch for batch in self.open[1:] if self._members(batch))]
        first = self.readings[:1]
        return [*first, *(group for group in self.groups if isinstance(group, Batch))]

    def used(self) -> int:
        return self._plan().used

    def _plan(self) -> Plan:
        sizes = [
            ([one.ask.places for one in self._members(batch)], batch.slots.rows * batch.slots.columns)
            for batch in self.batches
        ]
        return Plan(self.room, sizes, len(self.open))

    def _members(self, batch: Batch) -> list[Ticket]:
        """Those in a batch, and those that are being read for it."""
        read = (ticket for one in self.readings if one.batch is batch for ticket in one.tickets)
        return [*batch.tickets, *read]


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
    return len(ticket.prefix if ticket.ask.source is None else ticket.ask.source)
