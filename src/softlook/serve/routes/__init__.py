"""HTTP routes, and what they share."""

import asyncio
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from softlook.serve.engine.async_bridge import LoopChannel, PendingRequests
from softlook.serve.engine.request import EngineRequest
from softlook.serve.loaded_model import LoadedModel
from softlook.serve.metrics import Metrics
from softlook.serve.protocol.openai_format import EventStream, ResponseFormatter, full_response, stream_chunks
from softlook.serve.protocol.responses import EmbeddingUsage, error_responses
from softlook.serve.registry import Deployment, ModelRegistry, TableDeployment

try:
    from fastapi import Request, Response
except ImportError as error:
    raise ImportError("serving requires extra packages: pip install softlook[serve]") from error

COMMON_ERRORS = error_responses(400, 401, 403, 405, 408, 413)
"""Errors of any route, most of them from the middleware."""
MODEL_ERRORS = COMMON_ERRORS | error_responses(404, 429, 500, 503)
STREAM_RESPONSE: dict[str, Any] = {
    "description": "The whole response, or server-sent events if `stream` is true.",
    "content": {
        "text/event-stream": {
            "schema": {"type": "object", "properties": {"data": {"type": "string"}}, "required": ["data"]}
        }
    },
}


class ServerContext:
    """What routes share: the models, the metrics and the channel from the engines."""

    def __init__(self, registry: ModelRegistry, metrics: Metrics) -> None:
        self.registry, self.metrics = registry, metrics
        self._channel: LoopChannel | None = None

    def submit(
        self, deployment: Deployment | TableDeployment, requests: Sequence[EngineRequest], request: Request
    ) -> PendingRequests:
        """Submit the engine requests of an HTTP request."""
        loop = asyncio.get_running_loop()
        if self._channel is None or self._channel.loop is not loop:
            self._channel = LoopChannel(loop)
        return PendingRequests(deployment.engine, requests, self._channel, request.receive)


def get_context(request: Request) -> ServerContext:
    return request.app.state.context


def json_response(content: BaseModel, status: int = 200) -> Response:
    return Response(content.model_dump_json(), status, media_type="application/json")


async def generate(
    formatter: ResponseFormatter,
    deployment: Deployment,
    requests: Sequence[EngineRequest],
    request: Request,
    *,
    stream: bool,
) -> Response:
    """Run the requests of a completion or a chat, and respond at once or as a stream."""
    context = get_context(request)
    pending = context.submit(deployment, requests, request)
    if not stream:
        return json_response(await full_response(formatter, pending, context.metrics))
    chunks = stream_chunks(formatter, pending, context.metrics)
    return EventStream(chunks, context.registry.limits.send_timeout, pending.close)


def count_encoded(requests: Sequence[EngineRequest], loaded: LoadedModel, metrics: Metrics) -> EmbeddingUsage:
    """Usage of an encoder."""
    tokens = sum(len(request.prompt) for request in requests)
    metrics.observe_tokens(loaded.name, tokens)
    return EmbeddingUsage(prompt_tokens=tokens, total_tokens=tokens)
