"""Serving the studio on a socket."""

import asyncio
import socket
from collections.abc import Callable

from softlook.base.errors import ConfigError
from softlook.serve.server import MIN_TOKEN_CHARS, address, is_loopback, serve_app
from softlook.studio.page import DeferredApi, guarded
from softlook.studio.security import Sessions


def run(
    api: DeferredApi,
    listener: socket.socket,
    sessions: Sessions,
    on_ready: Callable[[str], None],
    recording: str | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM.

    - `on_ready`: called with the link that opens the studio.
    - `recording`: what the page shows until the API answers.
    """
    host, url = listener.getsockname()[0], link(listener, sessions)
    app = guarded(api, sessions, recording, allowed_hosts={host}, allow_ip_hosts=not is_loopback(host))
    asyncio.run(serve_app(app, listener, lambda _: on_ready(url), api.close))


def link(listener: socket.socket, sessions: Sessions) -> str:
    """A link that opens the studio in one browser."""
    return f"{address(listener)}/?token={sessions.new_token()}"


def check_address(host: str, token: str | None) -> None:
    """Refuse an address that other machines reach without a token, and a token that is easy to guess."""
    if not is_loopback(host) and token is None:
        raise ConfigError(
            f"{host} is reachable from other machines, so a token is required. "
            "Set one: softlook studio --token-file FILE, or the environment variable SOFTLOOK_TOKEN."
        )
    if token is not None and (len(token) < MIN_TOKEN_CHARS or not token.isascii()):
        raise ConfigError(
            f"a token must have at least {MIN_TOKEN_CHARS} ASCII characters; got {len(token)}. "
            "Generate one: python -c 'import secrets; print(secrets.token_urlsafe())'"
        )
