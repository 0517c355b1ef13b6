"""Sessions of the studio: a link with a one-time token, which is exchanged for a cookie."""

import hmac
import secrets
import threading
from http.cookies import CookieError, SimpleCookie
from typing import Any

from softlook.serve.middleware import Middleware, Scope, header_values
from softlook.serve.protocol.responses import error_response

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The content security policy of the page."""
MAX_SESSIONS = 64
REFUSED = "open the link that `softlook studio` printed; each link opens one browser: start it again for another"


class Sessions:
    """Tokens of links, and the cookies that they were exchanged for.

    - `token`: a token that is not used up by the first browser; default: new ones, for one browser each.
    """

    def __init__(self, token: str | None = None) -> None:
        self.fixed = token
        self.cookie = f"softlook-{secrets.token_hex(4)}"  # a browser keeps the cookies of all ports of a host together
        self._tokens: set[str] = set()
        self._sessions: list[str] = []
        self._lock = threading.Lock()

    def new_token(self) -> str:
        """The token of a link."""
        if self.fixed is not None:
            return self.fixed
        token = secrets.token_urlsafe(32)
        with self._lock:
            self._tokens.add(token)
        return token

    def exchange(self, token: str) -> str | None:
        """The `Set-Cookie` header for a token, which is then used up; None if it is not valid."""
        with self._lock:
            known = next((one for one in self._valid_tokens() if _equal(one, token)), None)
            if known is None:
                return None
            self._tokens.discard(known)
            session = secrets.token_urlsafe(32)
            self._sessions = [*self._sessions, session][-MAX_SESSIONS:]
        return f"{self.cookie}={session}; HttpOnly; SameSite=Strict; Path=/"

    def is_open(self, scope: Scope) -> bool:
        """Whether a request has the cookie of a session."""
        values = []
        for header in header_values(scope, b"cookie"):
            try:
                cookies = SimpleCookie(header)
            except CookieError:
                continue
            values += [cookies[self.cookie].value] if self.cookie in cookies else []
        return any(_equal(session, value) for session in self._sessions for value in values)

    def _valid_tokens(self) -> list[str]:
        return [*self._tokens, *([] if self.fixed is None else [self.fixed])]


class SessionCheck(Middleware):
    """Refuses requests without the cookie of a session."""

    def __init__(self, app: Any, sessions: Sessions) -> None:
        super().__init__(app)
        self.sessions = sessions

    async def http(self, scope: Scope, receive: Any, send: Any) -> None:
        app = self.app if self.sessions.is_open(scope) else error_response(401, REFUSED)
        await app(scope, receive, send)


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode("utf-8", "replace"))
