"""A server on a real socket, in a thread of this process."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from softlook.serve.registry import ModelRegistry
from softlook.serve.server import ServerConfig, serve


@contextmanager
def serving(registry: ModelRegistry, token: str | None = None) -> Iterator[str]:
    """Its address, while it listens on a free port."""
    found: list[str] = []
    ready, over, ends = threading.Event(), threading.Event(), list[asyncio.Event]()

    def told(address: str) -> None:
        found.append(address)
        ready.set()

    async def live() -> None:
        ends.append(asyncio.Event())
        loops.append(asyncio.get_running_loop())
        await serve(registry, ServerConfig(port=0, token=token), told, ends[0])

    def work() -> None:
        try:
            asyncio.run(live())
        finally:
            over.set()
            ready.set()

    loops: list[asyncio.AbstractEventLoop] = []
    threading.Thread(target=work, daemon=True).start()
    assert ready.wait(30) and found, "the server did not start"
    try:
        yield found[0]
    finally:
        loops[0].call_soon_threadsafe(ends[0].set)
        assert over.wait(30), "the server did not end"
