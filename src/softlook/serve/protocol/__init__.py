"""Requests and responses of the HTTP API."""

from importlib.util import find_spec

if any(find_spec(name) is None for name in ("fastapi", "jinja2", "starlette")):
    raise ImportError("serving requires extra packages: pip install softlook[serve]")
