"""A server on a socket: granian, in this process, with deadlines for those who are slow on purpose."""

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from softlook.base.errors import ConfigError
from softlook.serve.app import make_app
from softlook.serve.guards import LOOPBACK
from softlook.serve.hall import Hall

try:
    from granian._granian import SocketHolder
    from granian.constants import HTTPModes, Interfaces
    from granian.http import HTTP1Settings
    from granian.server.embed import Server
except ImportError as fault:
    raise ImportError("to serve, install what a server needs: pip install softlook[serve]") from fault

log = logging.getLogger("softlook.serve")
LEAST_TOKEN = 16
"""Characters of a token that is worth the name."""
HEADERS = 12
"""Seconds in which the head of a request has to arrive, once it has begun."""
SILENT = 5
"""Seconds that a new connection may say nothing, where the system can see to it."""
TAKES_NOTHING = 20
"""Seconds after which a connection is given up whose other end takes nothing of what is sent, likewise."""
CONNECTIONS = 4096
GRACE = 8.0
"""Seconds in which answers that are under way may be finished when a server ends."""
FLUSH = 1.0
"""Seconds for what was answered to leave the machine, once no request is in flight."""


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where a server listens, what it is called, and what it wants to hear."""

    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not is_loopback(self.host) and self.token is None:
            raise ConfigError(
                f"{self.host} can be reached from other machines, and whoever reaches it could use your models. "
                "Set a token: softlook serve --token-file FILE, or SOFTLOOK_TOKEN in the environment."
            )
        if self.token is not None and (len(self.token) < LEAST_TOKEN or not self.token.isascii()):
            raise ConfigError(
                f"a token has at least {LEAST_TOKEN} plain characters; one with {len(self.token)} came. "
                "A good one: python -c 'import secrets; print(secrets.token_urlsafe())'"
            )

    @property
    def own_names(self) -> Collection[str]:
        return {*self.names, self.host}


def is_loopback(host: str) -> bool:
    """Is this address for this machine alone?

    >>> is_loopback("localhost"), is_loopback("127.0.0.9"), is_loopback("0.0.0.0"), is_loopback("example.org")
    (True, True, False, False)
    """
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host in LOOPBACK


def run(hall: Hall, address: Address, ready: Callable[[str], None] = log.info) -> None:
    """Serve until told to end, by Ctrl-C or by the system."""
    asyncio.run(listen(hall, address, ready))


class Listening(Server):
    """granian's server, on a socket that is opened already."""

    def __init__(self, app: Any, taken: socket.socket, **settings: Any) -> None:
        self.taken = taken
        super().__init__(app, **settings)

    def _init_shared_socket(self) -> None:
        self._ssp, self._shd = None, SocketHolder(self.taken.detach(), False, self.backlog)  # pyright: ignore[reportCallIssue]
        self._sfd = self._shd.get_fd()

    async def abandon(self, serving: "asyncio.Task[None]") -> None:
        """End now, whatever connections are open: granian would wait for those that have not asked anything yet."""
        asyncio.get_running_loop().set_exception_handler(_ignore_late_ends)
        for worker in self.wrks:
            worker.kill()
        with suppress(asyncio.CancelledError):
            await serving


def _ignore_late_ends(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """granian may say that a worker has ended after it was abandoned."""
    if not isinstance(context.get("exception"), asyncio.InvalidStateError):
        loop.default_exception_handler(context)


class InFlight:
    """Knows whether any request is being answered."""

    def __init__(self, app: Any) -> None:
        self.app, self.count, self.idle = app, 0, asyncio.Event()
        self.idle.set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        self.count += 1
        self.idle.clear()
        try:
            return await self.app(scope, receive, send)
        finally:
            self.count -= 1
            if not self.count:
                self.idle.set()


def opened(host: str, port: int) -> socket.socket:
    """A socket. Connections that say nothing are not even taken: the system waits for their first word, not long."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    taken = socket.socket(family, socket.SOCK_STREAM)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if sys.platform == "linux":
        taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, SILENT)
        taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, TAKES_NOTHING * 1000)
    try:
        taken.bind((host, port))
        taken.listen(CONNECTIONS)  # from here on nobody is turned away: who comes early waits
    except OSError as fault:
        taken.close()
        raise ConfigError(f"{host}:{port} cannot be listened on: {fault.strerror}. Choose another --port.") from None
    return taken


async def listen(hall: Hall, address: Address, ready: Callable[[str], None], stop: asyncio.Event | None = None) -> None:
    """The same in a loop that runs already; `stop` ends it. The hall's workers end with it."""
    app = InFlight(make_app(hall, token=address.token, names=address.own_names, numbers=not is_loopback(address.host)))
    host = "127.0.0.1" if address.host == "localhost" else address.host
    taken = opened(host, address.port)
    where = f"http://{f'[{host}]' if ':' in host else host}:{taken.getsockname()[1]}"
    server = Listening(
        app,
        taken,
        interface=Interfaces.ASGI,
        http=HTTPModes.http1,
        websockets=False,
        backlog=CONNECTIONS,
        backpressure=CONNECTIONS,
        http1_settings=HTTP1Settings(header_read_timeout=HEADERS * 1000, keep_alive=False, max_buffer_size=1 << 17),
        log_enabled=False,
    )
    server.on_startup(lambda: ready(where))
    stop = asyncio.Event() if stop is None else stop
    _heed_signals(stop)
    serving = asyncio.create_task(server.serve())
    ending = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([serving, ending], return_when=asyncio.FIRST_COMPLETED)
        server.stop()
        idle = asyncio.create_task(app.idle.wait())
        await asyncio.wait([serving, idle], timeout=GRACE, return_when=asyncio.FIRST_COMPLETED)
        idle.cancel()
    finally:
        ending.cancel()
        await asyncio.to_thread(hall.close)  # whoever still waits is told
    await asyncio.wait([serving], timeout=FLUSH)
    await (serving if serving.done() else server.abandon(serving))


def _heed_signals(stop: asyncio.Event) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError, RuntimeError, ValueError):  # not in every thread, not on every system
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
