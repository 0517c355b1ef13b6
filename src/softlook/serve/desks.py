"""Where work is done, one turn at a time. A desk belongs to the worker's thread alone."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from torch import Tensor

from softlook.decode import Token
from softlook.serve.asking import Ticket
from softlook.serve.choosing import choose


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
        """Let these come in."""
        ...

    def turn(self) -> None:
        """One step of everything."""
        ...

    def clear(self) -> None:
        """Let go of all there is; whoever was here has been told."""
        ...


def said(scores: Tensor, tickets: Sequence[Ticket]) -> list[int]:
    """Each ticket takes its next word; the places of those that go on."""
    for ticket, word in zip(tickets, choose(scores, tickets), strict=True):
        if isinstance(word, Token):
            ticket.take(word)
        else:
            ticket.fail(word)
    return [place for place, ticket in enumerate(tickets) if not (ticket.over or ticket.cancelled)]
