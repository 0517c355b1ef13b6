"""The pages at / and /docs.

They load nothing from elsewhere, and hold nothing about the models until they ask the server. With a bearer token, they
are served with status 401 to a browser without it, and ask for the token.
"""

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from starlette.responses import Response

PAGES = {"/": "index", "/docs": "docs"}
"""Names of the pages by path."""
TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>softlook</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<form id="login" hidden>
<label for="token">Bearer token of this server</label>
<input id="token" type="password" autocomplete="off">
<button>Continue</button>
</form>
<p class="error" id="problem" role="alert"></p>
{body}
<script>{script}</script>
</body>
</html>
"""


def page_response(path: str, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """The page of a path. Its content security policy allows its own style and script, and requests to this server."""
    content, policy = _render(PAGES[path])
    return Response(content, status, {**(headers or {}), "content-security-policy": policy}, "text/html")


@cache
def _render(name: str) -> tuple[str, str]:
    """The page, and its content security policy."""
    style, script = _read("style.css"), _read("shared.js") + _read(f"{name}.js")
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return TEMPLATE.format(style=style, body=_read(f"{name}.html"), script=script), policy


def _read(name: str) -> str:
    return (files("softlook.serve.pages") / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
