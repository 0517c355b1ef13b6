"""POST /v1/completions."""

from softlook.serve.protocol import responses
from softlook.serve.protocol.openai_format import CompletionFormatter
from softlook.serve.protocol.parsing import ParsingRoute
from softlook.serve.protocol.preprocess import (
    by_json_path,
    check_total_tokens,
    generation_requests,
    logits_processors,
    resolve_max_new_tokens,
    sampling_params,
    tokenize_prompts,
)
from softlook.serve.protocol.requests import CompletionRequest
from softlook.serve.routes import MODEL_ERRORS, STREAM_RESPONSE, generate, get_context

try:
    from fastapi import APIRouter, Request, Response
except ImportError as error:
    raise ImportError("serving requires extra packages: pip install softlook[serve]") from error

router = APIRouter(route_class=ParsingRoute)
DEFAULT_MAX_TOKENS = 16
"""As in OpenAI's API."""


@router.post("/v1/completions", response_model=responses.Completion, responses=MODEL_ERRORS | {200: STREAM_RESPONSE})
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
    sampling = sampling_params(body, num_logprobs, logits_processors(body, loaded))
    requests = generation_requests(body, loaded, inputs, sampling)
    return await generate(CompletionFormatter(body, loaded), deployment, requests, request, stream=body.stream)
