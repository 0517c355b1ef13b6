"""The studio in a notebook: a widget whose page sends its requests to the kernel."""

import json
import threading
from typing import Any
from urllib.parse import unquote

from softlook.lens.figures.figure import Figure
from softlook.lens.figures.state import from_url
from softlook.lens.trace import Trace
from softlook.studio.app import create_routes
from softlook.studio.local import request
from softlook.studio.page import static_file
from softlook.studio.recording import StudioTrace
from softlook.studio.session import Studio

try:
    import anywidget
    import traitlets
except ImportError as error:
    raise ImportError("the widget requires extra packages: pip install softlook[notebook]") from error

METHODS = {"get": "GET", "frame": "GET", "post": "POST", "stream": "POST"}
MAX_MESSAGE_PATH = 500


class StudioWidget(anywidget.AnyWidget):
    """The page of the studio as a widget. A saved notebook shows the figure of its state instead."""

    _esm = static_file("studio.js")
    _css = static_file("studio.css")
    hash = traitlets.Unicode("").tag(sync=True)
    """What is shown, as in the address of the page: "#/view/head?layer=0"."""

    def __init__(self, studio: Studio, hash: str = "") -> None:
        super().__init__(hash=hash)
        self.studio = studio
        self.app = create_routes(studio)
        self.on_msg(self._receive)

    def figure(self) -> Figure:
        """What is shown, as a figure."""
        return from_url(self.hash, self.studio.first().trace)

    def _repr_mimebundle_(self, **options: Any) -> Any:
        bundle = super()._repr_mimebundle_(**options)
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle or {}, {})
        return {**data, "image/svg+xml": self.figure().svg()}, metadata

    def _receive(self, widget: Any, message: Any, buffers: Any) -> None:
        """Answer a message in a thread: the kernel stays free."""
        kind = message.get("kind") if isinstance(message, dict) else None
        if kind in METHODS:
            threading.Thread(target=self._answer, args=(message,), daemon=True).start()

    def _answer(self, message: dict[str, Any]) -> None:
        id, kind, path = message.get("id"), message["kind"], str(message.get("path", ""))[:MAX_MESSAGE_PATH]
        parts = bytearray()

        def send_events(part: bytes) -> None:
            parts.extend(part)
            while (end := parts.find(b"\n\n")) >= 0:
                lines = bytes(parts[:end]).decode().split("\n")
                del parts[: end + 2]
                name, data = (line.partition(": ")[2] for line in lines[:2])
                self.send({"id": id, "event": name, "data": json.loads(data)})

        try:
            found = request(
                self.app,
                METHODS[kind],
                f"/api/{unquote(path)}",
                message.get("query"),
                message.get("body") if kind in ("post", "stream") else None,
                send_events if kind == "stream" else None,
            )
        except Exception as error:
            self.send({"id": id, "ok": False, "message": str(error)[:500]})
            return
        if found.status >= 400:
            self.send({"id": id, "ok": False, "message": found.json()["error"]["message"]})
        elif kind == "frame":
            self.send({"id": id, "ok": True}, [found.body])
        else:
            self.send({"id": id, "ok": True, "body": None if kind == "stream" else found.json()})


def widget(shown: Trace | StudioTrace | Studio, hash: str = "") -> StudioWidget:
    """The studio in a notebook, for a trace, a recording or a studio with a model.

    - `hash`: what it shows first, such as "#/view/head?layer=0&head=1".

    >>> from softlook.studio.recordings import load_example
    >>> widget(load_example(), "#/view/head").hash
    '#/view/head'
    """
    if isinstance(shown, Trace):
        shown = StudioTrace(shown, "trace")
    return StudioWidget(Studio([shown]) if isinstance(shown, StudioTrace) else shown, hash)
