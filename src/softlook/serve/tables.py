"""A table's model under a name, and the desk where its rows are answered: those that come together, together."""

import time
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from softlook.serve.asking import Ticket
from softlook.serve.desks import GroupedDesk

Cell = str | float | int | bool | None
"""What JSON has for a cell. None: it is missing."""
Label = str | float | int | bool
Cells = Mapping[str, Sequence[Cell]]
"""Columns by their names, all of one length."""


@runtime_checkable
class Table(Protocol):
    """What a server wants of a table's model. Whoever has one hands it in: a server knows no estimators."""

    @property
    def kind(self) -> str:
        """What it is called by those who made it."""
        ...

    @property
    def target(self) -> tuple[str, ...]:
        """What is predicted."""
        ...

    @property
    def columns(self) -> Mapping[str, str]:
        """What it reads, in order, and what each holds: number, boolean, category, ordinal, date or text."""
        ...

    @property
    def classes(self) -> Sequence[Label]:
        """What it may answer; nothing where it answers in numbers."""
        ...

    @property
    def explains(self) -> bool:
        """Can it say where it looked?"""
        ...

    def read(self, cells: Cells, most: int) -> Sequence[Sized]:
        """Rows as the model reads them, in parts of so many at most. A cell that cannot be read is a DataError.

        Many threads may call it at once. What a row becomes does not depend on those beside it.
        """
        ...

    def answer(self, parts: Sequence[Any]) -> Tensor:
        """(N, C): what is said of the rows of these parts. The worker's thread alone calls it, and the next."""
        ...

    def looks(self, parts: Sequence[Any]) -> Tensor:
        """(N, columns): how much was looked at each column, NaN at one that is never looked at."""
        ...

    def told(self, answers: Tensor) -> list[Any]:
        """For each row its class; or its number, or a list of them."""
        ...


@dataclass(frozen=True)
class ServedTable:
    """A table's model under the name it is asked for by."""

    name: str
    table: Table
    created: int = field(default_factory=lambda: int(time.time()))
    abilities = ("tables",)


class RowGroup:
    """Rows of requests that are answered together, all in the same way."""

    def __init__(self, table: Table, tickets: Sequence[Ticket], *, is_open: bool = True) -> None:
        """Others may join one that is open; not one that is tried again after a fault."""
        self.table, self.tickets, self.is_open = table, list(tickets), is_open

    def takes(self, ticket: Ticket) -> bool:
        """May this one be answered together with those that are here?"""
        return self.is_open and all(one.ask.looks is ticket.ask.looks for one in self.tickets)

    def turn(self) -> "list[RowGroup]":
        """All of them."""
        left = [ticket for ticket in self.tickets if not ticket.cancelled]
        if not left:
            return []
        ask = self.table.looks if left[0].ask.looks else self.table.answer
        found = ask([ticket.ask.rows for ticket in left])
        for ticket, some in zip(left, found.split([count_of([ticket]) for ticket in left]), strict=True):
            ticket.answer(some.clone())
        return []

    def restart(self, tickets: Sequence[Ticket]) -> "RowGroup":
        return RowGroup(self.table, tickets, is_open=False)

    def release(self) -> None:
        self.tickets = []


class TableDesk(GroupedDesk):
    """Rows that come within a few milliseconds of each other are answered together."""

    patience = 0.003

    def __init__(self, table: Table, *, rows: int = 256) -> None:
        super().__init__(rows, rows)
        self.table = table

    def has_room(self, ticket: Ticket, beside: Sequence[Ticket]) -> bool:
        """Those with many rows have half as much room, of their own: the others do not wait for it."""
        others = [one for one in (*self.tickets, *beside) if one.ask.is_long is ticket.ask.is_long]
        return not others or count_of([*others, ticket]) <= self.room // (1 + ticket.ask.is_long)

    def join(self, tickets: Sequence[Ticket]) -> None:
        for ticket in tickets:
            found = next((one for one in self.groups if isinstance(one, RowGroup) and one.takes(ticket)), None)
            if found is None:
                self.groups.append(RowGroup(self.table, [ticket]))
            else:
                found.tickets.append(ticket)

    def used(self) -> int:
        return count_of(self.tickets)


def count_of(tickets: Sequence[Ticket]) -> int:
    """Their rows."""
    return sum(len(ticket.ask.rows) for ticket in tickets if ticket.ask.rows is not None)
