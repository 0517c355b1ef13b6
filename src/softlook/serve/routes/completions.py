"""POST /v1/completions and /v1/chat/completions."""

from collections.abc import Sequence

from fastapi import APIRouter, Request, Response

from softlook.base.errors import DataError
from softlook.serve.engine.request import EngineRequest
from softlook.serve.loaded_model import LoadedModel
from softlook.serve.protocol import responses
from softlook.serve.protocol.openai_format import (
    ChatFormatter,
    CompletionFormatter,
    EventStream,
    ResponseFormatter,
    full_response,
    stream_chunks,
)
from softlook.serve.protocol.parsing import ParsingRoute
from softlook.serve.protocol.preprocess import (
    INLINE_SIZE,
    by_json_path,
    check_total_tokens,
    generation_requests,
    logits_processors,
    offload,
    resolve_max_new_tokens,
    tokenize_prompts,
)
from softlook.serve.protocol.requests import ChatRequest, CompletionRequest
from softlook.serve.registry import Deployment
from softlook.serve.routes import MODEL_ERRORS, get_context, json_response

router = APIRouter(route_class=ParsingRoute)
DEFAULT_MAX_TOKENS = 16
"""As in OpenAI's API."""
EVENT_SCHEMA = {"type": "object", "properties": {"data": {"type": "string"}}, "required": ["data"]}
STREAM_RESPONSES = MODEL_ERRORS | {
    200: {
        "description": "The whole response, or server-sent events if `stream` is true.",
        "content": {"text/event-stream": {"schema": EVENT_SCHEMA}},
    }
}


@router.post("/v1/completions", response_model=responses.Completion, responses=STREAM_RESPONSES)
async def completions(body: CompletionRequest, request: Request) -> Response:
    """Continue a prompt."""
    registry = get_context(request).registry
    deployment, limits = registry.get(body.model, "completions"), registry.limits
    loaded, prompts, num_logprobs = deployment.loaded, by_json_path("prompt", body.prompt), body.logprobs or 0
    check_total_tokens(len(prompts) * body.n, body.max_tokens or DEFAULT_MAX_TOKENS, num_logprobs, limits)
    inputs = [
        (ids, resolve_max_new_tokens(body.max_tokens, len(ids), loaded, limits, DEFAULT_MAX_TOKENS))
        for ids in await tokenize_prompts(loaded, prompts)
    ]
    requests = generation_requests(body, loaded, inputs, num_logprobs, logits_processors(body, loaded))
    return await _respond(CompletionFormatter(body, loaded), deployment, requests, request)


@router.post("/v1/chat/completions", response_model=responses.ChatCompletion, responses=STREAM_RESPONSES)
async def chat_completions(body: ChatRequest, request: Request) -> Response:
    """Continue a conversation, rendered by the model's chat template."""
    registry = get_context(request).registry
    deployment, limits = registry.get(body.model, "chat"), registry.limits
    loaded, template = deployment.loaded, deployment.loaded.chat_template
    assert template is not None
    messages = [message.for_template() for message in body.messages]
    if sum(len(message["content"]) for message in messages) > loaded.context * loaded.max_token_chars:
        raise DataError(f"this conversation is longer than the context of {loaded.context:,} tokens")
    text = await template.render_async(messages)
    ids = tuple(await offload(lambda: loaded.encode(text, loaded.context - 1, parse_special=True), len(text)))
    if not ids:
        raise DataError("the model's chat template renders this conversation as an empty text")
    max_tokens = body.max_completion_tokens or body.max_tokens
    max_new_tokens = resolve_max_new_tokens(max_tokens, len(ids), loaded, limits, limits.max_new_tokens)
    num_logprobs = body.top_logprobs or 0
    check_total_tokens(body.n, max_new_tokens, num_logprobs, limits)
    size = 0 if body.response_format is None else 1 + INLINE_SIZE  # compiling a schema is slow
    processors = await offload(lambda: logits_processors(body, loaded), size)
    requests = generation_requests(body, loaded, [(ids, max_new_tokens)], num_logprobs, processors)
    return await _respond(ChatFormatter(body, loaded), deployment, requests, request)


async def _respond(
    formatter: ResponseFormatter,
    deployment: Deployment[LoadedModel],
    requests: Sequence[EngineRequest],
    request: Request,
) -> Response:
    """Run the requests, and respond at once or as a stream."""
    context = get_context(request)
    pending = context.submit(deployment, requests, request)
    if not formatter.request.stream:
        return json_response(await full_response(formatter, pending, context.metrics))
    chunks = stream_chunks(formatter, pending, context.metrics)
    return EventStream(chunks, context.registry.limits.send_timeout, pending.close)
