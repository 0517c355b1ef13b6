"""The worker: one thread that owns a model and brings everybody's asks on together, word by word."""

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

import torch

from softlook.serve.asking import Ask, Listener, Piece, Ticket
from softlook.serve.desks import Desk

log = logging.getLogger("softlook.serve")
GIVES_UP = 3
"""Faults in a row, without an answer between them, after which a worker takes itself for broken."""


class BusyError(Exception):
    """The queue is full."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"the queue is full; try again in {seconds} s")
        self.seconds = seconds


class BrokenError(Exception):
    """The worker cannot answer: it failed, or it was told to end."""


@dataclass
class Counts:
    """What a worker has done since it began."""

    turns: int = 0
    finished: int = 0
    cancelled: int = 0
    faults: int = 0
    refused: int = 0


class Carrying(Protocol):
    """Takes what listeners were told to where somebody waits for it."""

    def carry(self) -> None: ...


class Engine:
    """A bounded queue, and the thread that works it off at a desk.

    >>> from softlook.models import GPT, GPTConfig
    >>> from softlook.serve.continuing import ContinuingDesk
    >>> model = GPT(GPTConfig(vocab=10, context=16, dim=16, depth=1, heads=2)).eval()
    >>> engine = Engine(ContinuingDesk(model))
    >>> len(engine.answer(Ask((3, 1, 4), limit=5)).row.new)
    5
    >>> engine.close()
    """

    def __init__(self, desk: Desk, *, queue: int = 1024, name: str = "model") -> None:
        self.desk, self.most, self.name, self.counts = desk, queue, name, Counts()
        self.fault: str | None = None
        """Why it is broken, where it is."""
        self.posts = set[Carrying]()
        """Called once behind every turn: what was told in it is carried away together."""
        # Searches and many rows have a queue of their own: one that waits for room holds up no other ask.
        self._queues, self._ended = (deque[Ticket](), deque[Ticket]()), deque[float](maxlen=64)
        self._wake, self._closed, self._in_a_row, self._working = threading.Condition(), False, 0, 0
        self._thread = threading.Thread(target=self._live, name=f"softlook-{name}", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Asks in the queue."""
        return sum(map(len, self._queues))

    @property
    def working(self) -> int:
        """Asks at the desk."""
        return self._working

    @property
    def alive(self) -> bool:
        return self.fault is None and self._thread.is_alive()

    def submit(self, asks: Sequence[Ask], listener: Listener) -> list[Ticket]:
        """Put asks into the queue, all of them or none. The listener hears of each."""
        tickets = [Ticket(ask, listener) for ask in asks]
        with self._wake:
            if self._closed or not self.alive:
                raise BrokenError(self.fault or "the server is about to end")
            if self.waiting + len(tickets) > self.most:
                self.counts.refused += len(tickets)
                raise BusyError(self._wait())
            for ticket in tickets:
                self._queues[ticket.ask.is_long].append(ticket)
            self._wake.notify()
        return tickets

    def answer(self, ask: Ask) -> Ticket:
        """Ask, and wait."""
        over: Future[Piece] = Future()
        (ticket,) = self.submit([ask], lambda _, piece: over.set_result(piece) if piece.last else None)
        fault = over.result().fault
        if fault is not None:
            raise fault
        return ticket

    def cancel(self, tickets: Sequence[Ticket]) -> None:
        """Nobody waits for these any longer. They are dropped before the next word."""
        for ticket in tickets:
            ticket.cancelled = True
        with self._wake:
            self._wake.notify()

    def close(self, seconds: float = 5.0) -> None:
        """End after the turn that is under way; whoever still waits is told."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join(seconds)

    def _wait(self) -> int:
        """Seconds until there may be room, by how fast answers came of late."""
        if len(self._ended) < 2:
            return 1
        rate = len(self._ended) / max(time.monotonic() - self._ended[0], 1e-3)
        return int(min(max(self.most / 4 / rate, 1), 60))

    def _live(self) -> None:
        with torch.inference_mode():
            while self._await_work():
                try:
                    self._turn()
                except BaseException as fault:  # a worker that dies silently is worse than any fault
                    self._survive(fault)
                self._carry()
        self._tell_all(BrokenError(self.fault or "the server has ended"))
        self._carry()

    def _carry(self) -> None:
        for post in tuple(self.posts):
            post.carry()

    def _await_work(self) -> bool:
        """Sleep until there is something to do. False where there will never be."""
        with self._wake:
            while not (self._closed or self.waiting or self.desk.tickets):
                self._wake.wait()
            return not self._closed and self.fault is None

    def _turn(self) -> None:
        if not self.desk.tickets and self.desk.patience:
            time.sleep(self.desk.patience)
        before = list(self.desk.tickets)
        coming = self._coming()
        if coming:
            self.desk.join(coming)
        self.desk.turn()
        self.counts.turns += 1
        self._count([*before, *coming])

    def _coming(self) -> list[Ticket]:
        coming: list[Ticket] = []
        with self._wake:
            for queue in self._queues:
                while queue and (queue[0].cancelled or self.desk.has_room(queue[0], coming)):
                    ticket = queue.popleft()
                    if ticket.cancelled:
                        self.counts.cancelled += 1
                    else:
                        coming.append(ticket)
        return coming

    def _count(self, tickets: Sequence[Ticket]) -> None:
        over = [ticket for ticket in tickets if ticket.over]
        staying = set(self.desk.tickets)
        self._ended.extend([time.monotonic()] * len(over))
        self.counts.finished += len(over)
        self.counts.cancelled += sum(not ticket.over and ticket not in staying for ticket in tickets)
        self._in_a_row = 0 if over else self._in_a_row
        self._working = len(staying)

    def _survive(self, fault: BaseException) -> None:
        """Whoever was at the desk is told; then all begins anew, unless it happens again and again."""
        log.error("%s: the worker met %s: %s", self.name, type(fault).__name__, fault)
        self.counts.faults += 1
        self._in_a_row += 1
        for ticket in self.desk.tickets:
            ticket.fail(BrokenError("the model failed while it answered; the server's log says why"))
        self.desk.clear()
        self._working = 0
        if self._in_a_row >= GIVES_UP:
            self.fault = f"the model failed {GIVES_UP} times in a row, the last time with a {type(fault).__name__}"

    def _tell_all(self, fault: Exception) -> None:
        with self._wake:
            waiting = [ticket for queue in self._queues for ticket in queue]
            for queue in self._queues:
                queue.clear()
        for ticket in (*self.desk.tickets, *waiting):
            ticket.fail(fault)
        self.desk.clear()
        self._working = 0
