"""The HTTP server: granian on a socket, with timeouts for slow clients."""

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from softlook.base.errors import ConfigError
from softlook.serve.middleware import LOOPBACK_HOSTS, Middleware, Scope

if TYPE_CHECKING:
    from softlook.serve.registry import ModelRegistry

try:
    from granian._granian import SocketHolder
    from granian.constants import HTTPModes, Interfaces
    from granian.http import HTTP1Settings
    from granian.server.embed import Server
except ImportError as error:
    raise ImportError("serving requires extra packages: pip install softlook[serve]") from error

log = logging.getLogger("softlook.serve")
MIN_TOKEN_CHARS = 16
HEADER_TIMEOUT = 12
"""Seconds in which the headers of a request must arrive."""
DEFER_ACCEPT_SECONDS = 5
"""Seconds a new connection may stay silent before it is dropped (Linux)."""
UNACKED_TIMEOUT = 20
"""Seconds after which a connection whose peer acknowledges nothing is closed (Linux)."""
MAX_CONNECTIONS = 4096
SHUTDOWN_GRACE = 8.0
"""Seconds in which running requests may finish at shutdown."""
FLUSH_TIMEOUT = 1.0
"""Seconds for sent responses to leave the machine, once no request is in flight."""


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """Address, bearer token and host names of a server."""

    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    allowed_hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not is_loopback(self.host) and self.token is None:
            raise ConfigError(
                f"{self.host} is reachable from other machines, so a token is required. "
                "Set one: softlook serve --token-file FILE, or the environment variable SOFTLOOK_TOKEN."
            )
        if self.token is not None and (len(self.token) < MIN_TOKEN_CHARS or not self.token.isascii()):
            raise ConfigError(
                f"a token must have at least {MIN_TOKEN_CHARS} ASCII characters; got {len(self.token)}. "
                "Generate one: python -c 'import secrets; print(secrets.token_urlsafe())'"
            )


def is_loopback(host: str) -> bool:
    """Whether an address is reachable from this machine only.

    >>> is_loopback("localhost"), is_loopback("127.0.0.9"), is_loopback("0.0.0.0"), is_loopback("example.org")
    (True, True, False, False)
    """
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host in LOOPBACK_HOSTS


def run(registry: "ModelRegistry", config: ServerConfig, on_ready: Callable[[str], None] = log.info) -> None:
    """Serve until SIGINT or SIGTERM."""
    asyncio.run(serve(registry, config, on_ready))


class GranianServer(Server):
    """granian's embedded server on a socket that is already open."""

    def __init__(self, app: Any, open_socket: socket.socket, **settings: Any) -> None:
        self.open_socket = open_socket
        super().__init__(app, **settings)

    def _init_shared_socket(self) -> None:
        holder = SocketHolder(self.open_socket.detach(), False, self.backlog)  # pyright: ignore[reportCallIssue]
        self._ssp, self._shd = None, holder
        self._sfd = self._shd.get_fd()

    async def abort(self, serving: "asyncio.Task[None]") -> None:
        """Stop without waiting for open connections: granian would wait for those without a request."""
        asyncio.get_running_loop().set_exception_handler(_ignore_invalid_state)
        for worker in self.wrks:
            worker.kill()
        with suppress(asyncio.CancelledError):
            await serving


def _ignore_invalid_state(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """granian may report that a worker has ended after it was aborted."""
    if not isinstance(context.get("exception"), asyncio.InvalidStateError):
        loop.default_exception_handler(context)


class InFlightTracker(Middleware):
    """Counts the requests in flight; `idle` is set while there are none."""

    def __init__(self, app: Any) -> None:
        super().__init__(app)
        self.count, self.idle = 0, asyncio.Event()
        self.idle.set()

    async def http(self, scope: Scope, receive: Any, send: Any) -> None:
        self.count += 1
        self.idle.clear()
        try:
            await self.app(scope, receive, send)
        finally:
            self.count -= 1
            if not self.count:
                self.idle.set()


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. On Linux, connections are accepted only once they send something."""
    host = "127.0.0.1" if host == "localhost" else host
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if sys.platform == "linux":
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, DEFER_ACCEPT_SECONDS)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKED_TIMEOUT * 1000)
    try:
        listener.bind((host, port))
        listener.listen(MAX_CONNECTIONS)  # from here on early clients wait instead of failing
    except OSError as error:
        listener.close()
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}. Choose another --port.") from None
    return listener


async def serve(
    registry: "ModelRegistry", config: ServerConfig, on_ready: Callable[[str], None], stop: asyncio.Event | None = None
) -> None:
    """Serve in a running event loop until `stop` is set, then close the registry."""
    from softlook.serve.app import create_app  # noqa: PLC0415  (imports torch: the studio shows its page before)

    allowed_hosts, allow_ip_hosts = {*config.allowed_hosts, config.host}, not is_loopback(config.host)
    app = create_app(registry, token=config.token, allowed_hosts=allowed_hosts, allow_ip_hosts=allow_ip_hosts)
    listener = listen(config.host, config.port)
    await serve_app(app, listener, on_ready, registry.close, stop)


def address(listener: socket.socket) -> str:
    """The URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


async def serve_app(
    app: Any,
    listener: socket.socket,
    on_ready: Callable[[str], None],
    close: Callable[[], None],
    stop: asyncio.Event | None = None,
) -> None:
    """Serve an ASGI application on a listening socket until `stop` is set, then call `close`."""
    tracked, url = InFlightTracker(app), address(listener)
    server = GranianServer(
        tracked,
        listener,
        interface=Interfaces.ASGI,
        http=HTTPModes.http1,
        websockets=False,
        backlog=MAX_CONNECTIONS,
        backpressure=MAX_CONNECTIONS,
        http1_settings=HTTP1Settings(
            header_read_timeout=HEADER_TIMEOUT * 1000, keep_alive=False, max_buffer_size=1 << 17
        ),
        log_enabled=False,
    )
    server.on_startup(lambda: on_ready(url))
    stop = asyncio.Event() if stop is None else stop
    _install_signal_handlers(stop)
    serving = asyncio.create_task(server.serve())
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
        server.stop()
        idle = asyncio.create_task(tracked.idle.wait())
        await asyncio.wait([serving, idle], timeout=SHUTDOWN_GRACE, return_when=asyncio.FIRST_COMPLETED)
        idle.cancel()
    finally:
        stopping.cancel()
        await asyncio.to_thread(close)  # pending requests get an error
    await asyncio.wait([serving], timeout=FLUSH_TIMEOUT)
    await (serving if serving.done() else server.abort(serving))


def _install_signal_handlers(stop: asyncio.Event) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError, RuntimeError, ValueError):  # not in every thread, not on every system
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
