"""POST /v1/chat/completions."""

from softlook.base.errors import DataError
from softlook.serve.protocol import responses
from softlook.serve.protocol.openai_format import ChatFormatter
from softlook.serve.protocol.parsing import ParsingRoute
from softlook.serve.protocol.preprocess import (
    INLINE_SIZE,
    check_total_tokens,
    generation_requests,
    logits_processors,
    offload,
    resolve_max_new_tokens,
    sampling_params,
)
from softlook.serve.protocol.requests import ChatRequest
from softlook.serve.routes import MODEL_ERRORS, STREAM_RESPONSE, generate, get_context

try:
    from fastapi import APIRouter, Request, Response
except ImportError as error:
    raise ImportError("serving requires extra packages: pip install softlook[serve]") from error

router = APIRouter(route_class=ParsingRoute)


@router.post(
    "/v1/chat/completions", response_model=responses.ChatCompletion, responses=MODEL_ERRORS | {200: STREAM_RESPONSE}
)
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
    sampling = sampling_params(body, num_logprobs, processors)
    requests = generation_requests(body, loaded, [(ids, max_new_tokens)], sampling)
    return await generate(ChatFormatter(body, loaded), deployment, requests, request, stream=body.stream)
