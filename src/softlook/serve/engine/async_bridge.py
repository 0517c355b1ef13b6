"""Bridge between the engine thread and the asyncio event loop."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from softlook.serve.engine.engine import Engine
from softlook.serve.engine.request import EngineRequest, RequestOutput, ScheduledRequest

Receive = Callable[[], Awaitable[Any]]


class ClientDisconnectedError(Exception):
    """The client closed the connection."""


class LoopChannel:
    """Delivers outputs to an event loop, once per engine step.

    Waking the loop takes the interpreter away from the engine thread: waking it for every token would slow both down.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop, self._pending = loop, deque[tuple[asyncio.Queue[Any], Any]]()

    def put(self, queue: asyncio.Queue[Any], item: Any) -> None:
        """Buffer an item until the next `flush`. Thread-safe."""
        self._pending.append((queue, item))

    def flush(self) -> None:
        """Deliver the buffered items. Thread-safe; raises if the loop is closed."""
        if self._pending:
            self.loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        while self._pending:
            queue, item = self._pending.popleft()
            queue.put_nowait(item)


class PendingRequests:
    """The engine requests of one HTTP request. Closing it aborts those that are not finished."""

    def __init__(
        self, engine: Engine, requests: Sequence[EngineRequest], channel: LoopChannel, receive: Receive
    ) -> None:
        self.engine, self.queue = engine, asyncio.Queue[tuple[ScheduledRequest, RequestOutput] | None]()
        engine.channels.add(channel)
        self.requests = engine.submit(requests, lambda scheduled, output: channel.put(self.queue, (scheduled, output)))
        self._indices = {scheduled: index for index, scheduled in enumerate(self.requests)}
        self._watcher = asyncio.get_running_loop().create_task(self._watch_disconnect(receive))

    async def outputs(self) -> AsyncIterator[tuple[int, RequestOutput]]:
        """Outputs with the index of their request, until all are finished."""
        try:
            pending = len(self.requests)
            while pending:
                item = await self.queue.get()
                if item is None:
                    raise ClientDisconnectedError
                scheduled, output = item
                if output.error is not None:
                    raise output.error
                pending -= output.is_final
                yield self._indices[scheduled], output
        finally:
            self.close()

    async def wait(self) -> list[ScheduledRequest]:
        """Wait until all requests are finished."""
        async for _ in self.outputs():
            pass
        return self.requests

    async def tensors(self) -> list[Any]:
        """The output tensor of each request."""
        tensors: dict[int, Any] = {index: output.tensor async for index, output in self.outputs()}
        return [tensors[index] for index in range(len(self.requests))]

    def close(self) -> None:
        """Abort unfinished requests."""
        self._watcher.cancel()
        self._abort()

    def _abort(self) -> None:
        unfinished = [scheduled for scheduled in self.requests if not scheduled.finished]
        if unfinished:
            self.engine.abort(unfinished)

    async def _watch_disconnect(self, receive: Receive) -> None:
        """Abort as soon as the client disconnects, even if nobody awaits an output."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self._abort()
        self.queue.put_nowait(None)
