"""HTTP routes, and what they share."""

import asyncio
from collections.abc import Sequence

from fastapi import Request, Response
from pydantic import BaseModel

from softlook.serve.engine.engine import LoopChannel, PendingRequests
from softlook.serve.engine.request import EngineRequest
from softlook.serve.metrics import Metrics
from softlook.serve.protocol.responses import error_responses
from softlook.serve.registry import AnyDeployment, ModelRegistry

COMMON_ERRORS = error_responses(400, 401, 403, 405, 408, 413)
"""Errors of any route, most of them from the middleware."""
MODEL_ERRORS = COMMON_ERRORS | error_responses(404, 429, 500, 503)


class ServerContext:
    """What routes share: the models, the metrics and the channel from the engines."""

    def __init__(self, registry: ModelRegistry, metrics: Metrics) -> None:
        self.registry, self.metrics = registry, metrics
        self._channel: LoopChannel | None = None

    def submit(self, deployment: AnyDeployment, requests: Sequence[EngineRequest], request: Request) -> PendingRequests:
        """Submit the engine requests of an HTTP request."""
        loop = asyncio.get_running_loop()
        if self._channel is None or self._channel.loop is not loop:
            self._channel = LoopChannel(loop)
        return PendingRequests(deployment.engine, requests, self._channel, request.receive)


def get_context(request: Request) -> ServerContext:
    return request.app.state.context


def json_response(content: BaseModel, status: int = 200) -> Response:
    return Response(content.model_dump_json(), status, media_type="application/json")
