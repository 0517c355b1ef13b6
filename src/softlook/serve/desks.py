"""Where work is done, one turn at a time. A desk belongs to the worker's thread alone."""

import logging
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from torch import Tensor

from softlook.decode import Token
from softlook.serve.asking import Ticket
from softlook.serve.choosing import choose
from softlook.serve.recovery import Group, Outcome, advance, explained, release_memory

log = logging.getLogger("softlook.serve")
REGAIN = 1024
"""Turns after which a desk that ran out of memory uses all of its cache again."""


@runtime_checkable
class Desk(Protocol):
    """Takes asks in, and brings them on by a turn: a word of each, or a whole batch of texts read."""

    patience: float
    """Seconds to wait for company before an idle desk begins."""

    @property
    def tickets(self) -> Sequence[Ticket]:
        """Those it works on."""
        ...

    def has_room(self, ticket: Ticket, beside: Sequence[Ticket]) -> bool:
        """May this one come in, beside others that are just coming in?"""
        ...

    def join(self, tickets: Sequence[Ticket]) -> None:
        """Let these come in, all of them or, where it raises, none."""
        ...

    def turn(self) -> Outcome:
        """One step of everything. A request that fails is told; the others go on."""
        ...

    def clear(self) -> None:
        """Let go of all there is; whoever was here has been told."""
        ...


class GroupedDesk:
    """A desk whose requests are in groups, each of which fails by itself."""

    def __init__(self, rows: int, places: int) -> None:
        self.most, self.places, self.room = rows, places, places
        """Requests and cache positions at most; of the positions, those that may be used now."""
        self.groups: list[Group] = []

    @property
    def tickets(self) -> list[Ticket]:
        return [ticket for group in self.groups for ticket in group.tickets]

    def due(self) -> Sequence[Group]:
        """The groups that take a step in this turn: the first. The others wait for theirs."""
        return self.groups[:1]

    def turn(self) -> Outcome:
        outcome = Outcome()
        for group in list(self.due()):
            others = [one for one in self.groups if one is not group]
            going = advance(group, outcome, alone=not any(one.tickets for one in others))
            place = next(number for number, one in enumerate(self.groups) if one is group)
            self.groups[place : place + 1] = [one for one in going if not any(one is other for other in others)]
        self._budget(outcome)
        return outcome

    def clear(self) -> None:
        for group in self.groups:
            group.release()
        self.groups = []

    def used(self) -> int:
        """Cache positions that the present requests may take up."""
        return 0

    def _budget(self, outcome: Outcome) -> None:
        """After running out of memory fewer requests come in, and gradually more again."""
        if outcome.exhausted:
            release_memory()
            self.room = max(min(self.room, self.used()) * 3 // 4, 1)
        elif self.room < self.places:
            self.room = min(self.room + self.places // REGAIN + 1, self.places)


def said(scores: Tensor, tickets: Sequence[Ticket]) -> list[int]:
    """Each ticket takes its next word; the places of those that go on."""
    for ticket, word in zip(tickets, choose(scores, tickets), strict=True):
        try:
            ticket.take(word) if isinstance(word, Token) else ticket.fail(word)
        except Exception as fault:  # its own text, its own stop strings: no other request has to do with it
            log.error("a token could not be taken", exc_info=fault)
            ticket.fail(explained(fault))
    return [place for place, ticket in enumerate(tickets) if not (ticket.over or ticket.cancelled)]
