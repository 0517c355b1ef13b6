"""Answers that come word by word, as server-sent events."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

from softlook.serve.engine import BrokenError
from softlook.serve.recovery import OF_THE_REQUEST, ModelError
from softlook.serve.waiting import GoneError

try:
    from starlette.responses import Response
except ImportError as fault:
    raise ImportError("to serve, install what a server needs: pip install softlook[serve]") from fault

log = logging.getLogger("softlook.serve")
HEADERS = ((b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no"))
DONE = b"data: [DONE]\n\n"


class Events(Response):
    """Sends what comes, as it comes. A client that takes nothing for too long is given up."""

    media_type = "text/event-stream"

    def __init__(self, chunks: AsyncIterator[str], stalled: float, leave: Callable[[], None]) -> None:
        """`leave` is called in the end, whatever happens: a generator that never began cleans nothing up."""
        super().__init__()
        self.chunks, self.stalled, self.leave = chunks, stalled, leave

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            async with asyncio.timeout(self.stalled):
                await send({"type": "http.response.start", "status": 200, "headers": [*HEADERS]})
            async for chunk in self._told():
                async with asyncio.timeout(self.stalled):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except (GoneError, TimeoutError, OSError):
            log.info("a client left before its answer was whole")
        finally:
            self.leave()
            with suppress(RuntimeError):
                await self.chunks.aclose()  # pyright: ignore[reportAttributeAccessIssue]  (it is a generator)

    async def _told(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self.chunks:
                yield b"data: " + chunk.encode() + b"\n\n"
        except (GoneError, TimeoutError, OSError, GeneratorExit):
            raise
        except Exception as fault:  # the answer has begun: all there is left is to say so in it
            log.error("an answer broke off with %s: %s", type(fault).__name__, fault)
            known = isinstance(fault, ModelError | BrokenError | OF_THE_REQUEST)
            said = {
                "message": str(fault) if known else "the model failed while it answered",
                "type": "server_error",
                "param": None,
                "code": None,
            }
            yield b"data: " + json.dumps({"error": said}).encode() + b"\n\n"
        yield DONE
