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

from softlook.base.errors import WeightsError
from softlook.serve.asking import Ask, Listener, Piece, Ticket
from softlook.serve.desks import Desk
from softlook.serve.recovery import ModelError, explained

log = logging.getLogger("softlook.serve")
GIVES_UP = 3
"""Requests in a row on which a model fails, after which its health says so. It goes on trying."""
OVERTAKING = 16
"""Requests that are let in before one that came earlier and finds no room. Then they wait until it does."""
LOOKED_PAST = 8
"""Requests without room that are looked past, at most, for one that has some."""


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
        """Why the last answers failed, while they all do."""
        self.posts = set[Carrying]()
        """Called once behind every turn: what was told in it is carried away together."""
        # Searches and many rows have a queue of their own: one that waits for room holds up no other ask.
        self._queues, self._ended = (deque[Ticket](), deque[Ticket]()), deque[float](maxlen=64)
        self._taken = list[Ticket]()
        """Whoever left the queue and is not over: whatever happens to them, these are told."""
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
        """Does the worker take requests? It does until it is closed, however many fail."""
        return self._thread.is_alive()

    def submit(self, asks: Sequence[Ask], listener: Listener) -> list[Ticket]:
        """Put asks into the queue, all of them or none. The listener hears of each."""
        tickets = [Ticket(ask, listener) for ask in asks]
        with self._wake:
            if self._closed or not self.alive:
                raise BrokenError("the server is about to end")
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
        """Nobody waits for these any longer. They leave the queue at once, and a batch before its next step."""
        gone = set(tickets)
        for ticket in gone:
            ticket.cancelled = True
        with self._wake:
            for queue in self._queues:
                staying = [ticket for ticket in queue if ticket not in gone]
                self.counts.cancelled += len(queue) - len(staying)
                queue.clear()
                queue.extend(staying)
            self._wake.notify()

    def stop(self) -> None:
        """End after the turn that is under way; whoever still waits is told then."""
        with self._wake:
            self._closed = True
            self._wake.notify()

    def close(self, seconds: float = 5.0) -> None:
        """End, and wait for it."""
        self.stop()
        self._thread.join(seconds)

    def _wait(self) -> int:
        """Seconds until there may be room, by how fast answers came of late."""
        if len(self._ended) < 2:
            return 1
        rate = len(self._ended) / max(time.monotonic() - self._ended[0], 1e-3)
        return int(min(max(self.most / 4 / rate, 1), 60))

    def _live(self) -> None:
        try:
            with torch.inference_mode():
                while self._await_work():
                    try:
                        self._turn()
                    except BaseException as fault:  # a worker that dies silently is worse than any fault
                        self._survive(fault)
                    self._carry()
        finally:
            self._tell_all(BrokenError("the server has ended"))
            self._carry()

    def _carry(self) -> None:
        for post in tuple(self.posts):
            try:
                post.carry()
            except Exception as fault:  # its loop is closed: whoever waited there is gone
                log.info("%s: answers could not be delivered: %s", self.name, fault)
                self.posts.discard(post)

    def _await_work(self) -> bool:
        """Sleep until there is something to do. False where there will never be."""
        with self._wake:
            while not (self._closed or self.waiting or self._taken):
                self._wake.wait()
            return not self._closed

    def _turn(self) -> None:
        if not self._taken and self.desk.patience:
            time.sleep(self.desk.patience)
        self._join(self._coming())
        outcome = self.desk.turn()
        self.counts.turns += 1
        self.counts.faults += outcome.faults
        self._postpone(outcome.postponed)
        self._count()

    def _coming(self) -> list[Ticket]:
        """Those that have room now, in their order; past one that has none, others may come, but not for ever."""
        coming: list[Ticket] = []
        with self._wake:
            for queue in self._queues:
                passed: list[Ticket] = []
                for ticket in tuple(queue):
                    if self._fits(ticket, coming):
                        queue.remove(ticket)
                        self._taken.append(ticket)
                        coming.append(ticket)
                        for one in passed:
                            one.overtaken += 1
                        continue
                    if ticket.over:
                        queue.remove(ticket)
                        continue
                    passed.append(ticket)
                    if ticket.overtaken >= OVERTAKING or len(passed) > LOOKED_PAST:
                        break
        return coming

    def _fits(self, ticket: Ticket, coming: Sequence[Ticket]) -> bool:
        if ticket.postponed and self._taken:
            return False
        try:
            return self.desk.has_room(ticket, coming)
        except BaseException as fault:
            self._failed(ticket, fault)
            return False

    def _join(self, coming: Sequence[Ticket]) -> None:
        """Let them come in together; where that fails, one by one, and whoever fails is told."""
        try:
            if coming:
                self.desk.join(coming)
        except BaseException as fault:
            if len(coming) == 1:
                self._failed(coming[0], fault)
                return
            for ticket in coming:
                self._join([ticket])

    def _failed(self, ticket: Ticket, fault: BaseException) -> None:
        log.error("%s: a request could not be taken in", self.name, exc_info=fault)
        self.counts.faults += 1
        ticket.fail(explained(fault))

    def _postpone(self, tickets: Sequence[Ticket]) -> None:
        """Back to the head of the queue, until nobody else is there."""
        with self._wake:
            for ticket in tickets:
                ticket.postponed = True
                self._taken.remove(ticket)
                self._queues[ticket.ask.is_long].appendleft(ticket)

    def _count(self) -> None:
        over = [ticket for ticket in self._taken if ticket.over]
        staying = set(self.desk.tickets)
        left = [ticket for ticket in self._taken if not ticket.over and ticket not in staying]
        for ticket in left:
            if not ticket.cancelled:
                log.error("%s: a desk lost a request of %d tokens", self.name, len(ticket.prefix))
                ticket.fail(ModelError("this request was lost: a fault of the server's own"))
        self._taken = [ticket for ticket in self._taken if not ticket.over and ticket in staying]
        self._ended.extend([time.monotonic()] * len(over))
        self.counts.finished += len(over)
        self.counts.cancelled += sum(ticket.cancelled for ticket in left)
        self._working = len(self._taken)
        self._judge(over)

    def _judge(self, over: Sequence[Ticket]) -> None:
        """Are all answers failures of late?"""
        failed = [ticket.fault for ticket in over if isinstance(ticket.fault, ModelError | WeightsError)]
        if len(failed) < len(over):
            self._in_a_row, self.fault = 0, None
        self._in_a_row += len(failed)
        if failed and self._in_a_row >= GIVES_UP:
            self.fault = f"the model failed {self._in_a_row} times in a row, the last time with: {failed[-1]}"

    def _survive(self, fault: BaseException) -> None:
        """A fault outside of any group of requests: whoever was there is told, and all begins anew."""
        log.error("%s: the worker met %s: %s", self.name, type(fault).__name__, fault, exc_info=fault)
        self.counts.faults += 1
        for ticket in self._taken:
            ticket.fail(explained(fault))
        self.desk.clear()
        self._count()

    def _tell_all(self, fault: Exception) -> None:
        with self._wake:
            waiting = [ticket for queue in self._queues for ticket in queue]
            for queue in self._queues:
                queue.clear()
        for ticket in (*self._taken, *waiting):
            ticket.fail(fault)
        self.desk.clear()
        self._taken, self._working = [], 0
