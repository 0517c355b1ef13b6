"""Between the worker's thread and the web's loop: pieces come over, and whoever goes away is noticed."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from softlook.serve.asking import Ask, Piece, Ticket
from softlook.serve.engine import Engine

Receive = Callable[[], Awaitable[Any]]


class GoneError(Exception):
    """The client has gone away."""


class Post:
    """Carries pieces into a loop, all of a turn at once.

    A loop that is woken takes the interpreter from the worker for a while: woken for every word, both do little else.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop, self._letters = loop, deque[tuple[asyncio.Queue[Any], Any]]()

    def put(self, box: asyncio.Queue[Any], letter: Any) -> None:
        """From any thread. It lies here until somebody calls `carry`."""
        self._letters.append((box, letter))

    def carry(self) -> None:
        """From any thread. It raises where the loop is closed: nobody waits any more."""
        if self._letters:
            self.loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        while self._letters:
            box, letter = self._letters.popleft()
            box.put_nowait(letter)


class Waiting:
    """One request's asks at the worker. Leave it, and what is not over is cancelled."""

    def __init__(self, engine: Engine, asks: Sequence[Ask], post: Post, receive: Receive) -> None:
        self.engine, self.box = engine, asyncio.Queue[tuple[Ticket, Piece] | None]()
        engine.posts.add(post)
        self.tickets = engine.submit(asks, lambda ticket, piece: post.put(self.box, (ticket, piece)))
        self._numbers = {ticket: number for number, ticket in enumerate(self.tickets)}
        self._watch = asyncio.get_running_loop().create_task(self._until_gone(receive))

    async def pieces(self) -> AsyncIterator[tuple[int, Piece]]:
        """What comes, with the number of the ask it is about, until all are over."""
        try:
            left = len(self.tickets)
            while left:
                letter = await self.box.get()
                if letter is None:
                    raise GoneError
                ticket, piece = letter
                if piece.fault is not None:
                    raise piece.fault
                left -= piece.last
                yield self._numbers[ticket], piece
        finally:
            self.leave()

    async def all(self) -> list[Ticket]:
        """Wait until all are over."""
        async for _ in self.pieces():
            pass
        return self.tickets

    async def numbers(self) -> list[Any]:
        """What an encoder says of each."""
        found: dict[int, Any] = {number: piece.numbers async for number, piece in self.pieces()}
        return [found[number] for number in range(len(self.tickets))]

    def leave(self) -> None:
        """Nobody waits any longer: what is not over is cancelled."""
        self._watch.cancel()
        self._cancel()

    def _cancel(self) -> None:
        left = [ticket for ticket in self.tickets if not ticket.over]
        if left:
            self.engine.cancel(left)

    async def _until_gone(self, receive: Receive) -> None:
        """Cancel at once when the client goes, even where nobody asks for the next piece just now."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self._cancel()
        self.box.put_nowait(None)
