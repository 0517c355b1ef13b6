"""Requests and responses of the HTTP API."""

from importlib.util import find_spec

if any(find_spec(name) is None for name in ("fastapi", "granian", "jinja2", "prometheus_client", "starlette")):
    raise ImportError("serving requires extra packages: pip install softlook[serve]")
