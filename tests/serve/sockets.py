"""A server on a real socket, in a thread of this process."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from softlook.serve.registry import ModelRegistry
from softlook.serve.server import ServerConfig, serve


@contextmanager
def serving(registry: ModelRegistry, token: str | None = None) -> Iterator[str]:
    """Serve on a free port, and yield the address."""
    addresses: list[str] = []
    ready, stopped, stop = threading.Event(), threading.Event(), list[asyncio.Event]()

    def on_ready(address: str) -> None:
        addresses.append(address)
        ready.set()

    async def run() -> None:
        stop.append(asyncio.Event())
        loops.append(asyncio.get_running_loop())
        await serve(registry, ServerConfig(port=0, token=token), on_ready, stop[0])

    def run_thread() -> None:
        try:
            asyncio.run(run())
        finally:
            stopped.set()
            ready.set()

    loops: list[asyncio.AbstractEventLoop] = []
    threading.Thread(target=run_thread, daemon=True).start()
    assert ready.wait(30) and addresses, "the server did not start"
    try:
        yield addresses[0]
    finally:
        loops[0].call_soon_threadsafe(stop[0].set)
        assert stopped.wait(30), "the server did not stop"
