"""Server-sent events from a generator that runs in a thread of its own."""

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from starlette.responses import StreamingResponse

log = logging.getLogger("softlook.studio")
Event = tuple[str, Any]
EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {}}, "description": "Server-sent events; the last is `done` or `error`."}
}


def event_response(produce: Callable[[], Iterator[Event]]) -> StreamingResponse:
    """Events of a generator, which runs in a thread of its own and ends when the client has left.

    An exception becomes the event "error" with its message.
    """
    return StreamingResponse(_events(produce), media_type="text/event-stream", headers={"cache-control": "no-store"})


async def _events(produce: Callable[[], Iterator[Event]]) -> AsyncIterator[bytes]:
    queue: asyncio.Queue[Event | None] = asyncio.Queue()
    loop, left = asyncio.get_running_loop(), threading.Event()

    def send(event: Event | None) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(queue.put_nowait, event)

    def work() -> None:
        events = produce()
        try:
            for event in events:
                if left.is_set():
                    events.close()  # pyright: ignore[reportAttributeAccessIssue]  (a generator)
                    break
                send(event)
        except Exception as error:
            log.info("a stream ended with an error", exc_info=error)
            send(("error", {"message": str(error)[:500]}))
        finally:
            send(None)

    threading.Thread(target=work, name="softlook-studio-events", daemon=True).start()
    try:
        while (event := await queue.get()) is not None:
            yield encode_event(*event)
    finally:
        left.set()


def encode_event(name: str, data: Any) -> bytes:
    """One event as text.

    >>> encode_event("token", {"token": "a\\n"})
    b'event: token\\ndata: {"token": "a\\\\n"}\\n\\n'
    """
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()
