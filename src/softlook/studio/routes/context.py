"""What the routes share: the studio of a request, frames as responses, cached answers."""

import hashlib
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, Query, Request
from starlette.responses import JSONResponse, Response

from softlook.serve.protocol.responses import error_responses
from softlook.studio.recording import StudioTrace
from softlook.studio.session import Studio

MEDIA_TYPE = "application/octet-stream"
MAX_CACHED, MAX_CACHED_BYTES = 256, 1 << 18
"""Answers that are kept, and the largest of them."""
ERRORS = error_responses(400, 401, 403, 404)
FRAME: dict[int | str, dict[str, Any]] = {**ERRORS, 200: {"content": {MEDIA_TYPE: {}}, "description": "A frame."}}
NONCE = secrets.token_hex(8)
"""Tells the answers of this process from those of earlier ones, whose ids of traces were others."""


class Answers:
    """Answers about recordings, which do not change: each is computed once, and has an ETag."""

    def __init__(self) -> None:
        self.known: OrderedDict[str, Response] = OrderedDict()
        self.lock = threading.Lock()

    def get(self, request: Request, recording: StudioTrace, compute: Callable[[], Any]) -> Response:
        """The answer to a request; status 304 if the browser has it."""
        key = f"{NONCE} {recording.live is not None} {request.url.path}?{request.url.query}"
        tag = f'"{hashlib.sha256(key.encode()).hexdigest()[:24]}"'
        headers = {"etag": tag, "cache-control": "private, no-cache"}
        if tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        found = self.known.get(tag)
        if found is None:
            found = _response(compute(), headers)
            self._keep(tag, found)
        return found

    def _keep(self, tag: str, response: Response) -> None:
        if len(response.body) > MAX_CACHED_BYTES:
            return
        with self.lock:
            self.known[tag] = response
            while len(self.known) > MAX_CACHED:
                self.known.popitem(last=False)


def _response(answer: Any, headers: dict[str, str]) -> Response:
    if isinstance(answer, bytes):
        return Response(answer, headers=headers, media_type=MEDIA_TYPE)
    return JSONResponse(answer, headers=headers)


def get_studio(request: Request) -> Studio:
    return request.app.state.studio


StudioOf = Annotated[Studio, Depends(get_studio)]
Attention = Annotated[str, Query(max_length=200, description="the path of an attention, or its number")]
Head = Annotated[str, Query(max_length=12, description="the number of a head, -1 for all, or mean")]
Range = Annotated[str, Query(max_length=40, description="first:stop; default: all")]


class TraceRequest:
    """A request about a recording."""

    def __init__(self, request: Request, id: str, studio: StudioOf) -> None:
        self.request, self.recording = request, studio.recording(id)

    def answer(self, compute: Callable[[], Any]) -> Response:
        """The answer, computed unless it is known."""
        return self.request.app.state.answers.get(self.request, self.recording, compute)


class HeadRequest(TraceRequest):
    """A request about heads of an attention."""

    def __init__(self, request: Request, id: str, studio: StudioOf, attention: Attention, head: Head = "-1") -> None:
        super().__init__(request, id, studio)
        self.path, self.head = self.recording.path(attention), head
        self.layer = self.recording.trace[self.path]


AskTrace = Annotated[TraceRequest, Depends(TraceRequest)]
AskHead = Annotated[HeadRequest, Depends(HeadRequest)]
