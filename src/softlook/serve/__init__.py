"""Requests in, answers out: models behind a web server, everybody's sequences worked on together.

What needs a package of its own is fetched when it is first asked for: `pip install softlook[serve]`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from softlook.serve.asking import Ask as Ask
from softlook.serve.asking import Manner as Manner
from softlook.serve.engine import Engine as Engine
from softlook.serve.limits import Limits as Limits

if TYPE_CHECKING:
    from softlook.serve.app import make_app as make_app
    from softlook.serve.hall import Hall as Hall
    from softlook.serve.running import Address as Address
    from softlook.serve.running import run as run
    from softlook.serve.served import Served as Served
    from softlook.serve.served import load_served as load_served

EXTRAS = {
    "Address": "softlook.serve.running",
    "Hall": "softlook.serve.hall",
    "Served": "softlook.serve.served",
    "load_served": "softlook.serve.served",
    "make_app": "softlook.serve.app",
    "run": "softlook.serve.running",
}


def __getattr__(name: str) -> Any:
    if name not in EXTRAS:
        raise AttributeError(f"module 'softlook.serve' has no attribute {name!r}")
    return getattr(import_module(EXTRAS[name]), name)
