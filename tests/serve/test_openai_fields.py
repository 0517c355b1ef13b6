"""Every field of OpenAI's requests is supported, accepted with a value that has no effect, or rejected by name."""

import json
from typing import Any

import pytest
from openai.types import completion_create_params, embedding_create_params
from openai.types.chat import completion_create_params as chat_create_params
from starlette.testclient import TestClient

from softlook.serve.protocol.requests import ChatRequest, CompletionRequest, EmbeddingRequest
from softlook.serve.registry import ModelRegistry
from tests.serve.tiny_models import words

ROUTES: dict[str, tuple[Any, type, dict[str, Any]]] = {
    "/v1/chat/completions": (
        chat_create_params.CompletionCreateParamsBase,
        ChatRequest,
        {"model": "chat", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3, "seed": 5},
    ),
    "/v1/completions": (
        completion_create_params.CompletionCreateParamsBase,
        CompletionRequest,
        {"model": "gpt", "prompt": "sea", "max_tokens": 3, "seed": 5},
    ),
    "/v1/embeddings": (
        embedding_create_params.EmbeddingCreateParams,
        EmbeddingRequest,
        {"model": "embed", "input": "sea"},
    ),
}
NEUTRAL: dict[str, list[Any]] = {
    "best_of": [1],
    "echo": [False],
    "encoding_format": ["float"],
    "frequency_penalty": [0],
    "function_call": ["none", "auto"],
    "functions": [[]],
    "logit_bias": [{}],
    "logprobs": [],
    "dimensions": [32],
    "metadata": [{}],
    "modalities": [["text"]],
    "n": [1],
    "parallel_tool_calls": [True, False],
    "presence_penalty": [0],
    "prompt_cache_key": ["a"],
    "prompt_cache_options": [{}],
    "prompt_cache_retention": ["in_memory"],
    "reasoning_effort": ["none"],
    "response_format": [{"type": "text"}],
    "safety_identifier": ["a"],
    "service_tier": ["auto", "default"],
    "stop": [[]],
    "store": [False],
    "stream_options": [{"include_usage": True}, {"include_usage": None, "include_obfuscation": False}],
    "suffix": [""],
    "temperature": [1],
    "tool_choice": ["none", "auto"],
    "tools": [[]],
    "top_p": [1],
    "user": ["a"],
    "verbosity": ["medium"],
}
"""Values without effect, besides null, which has no effect for any field."""
REQUIRED = {"model", "messages", "prompt", "input", "max_tokens", "max_completion_tokens", "seed"}
UNSUPPORTED: dict[str, Any] = {
    "audio": {"voice": "ash", "format": "wav"},
    "best_of": 2,
    "echo": True,
    "function_call": {"name": "f"},
    "functions": [{"name": "f"}],
    "metadata": {"a": "b"},
    "modalities": ["text", "audio"],
    "moderation": {"a": 1},
    "prediction": {"type": "content", "content": "a"},
    "prompt_cache_options": {"a": 1},
    "prompt_cache_retention": "24h",
    "reasoning_effort": "high",
    "service_tier": "flex",
    "store": True,
    "suffix": "end",
    "tool_choice": "required",
    "tools": [{"type": "function", "function": {"name": "f"}}],
    "verbosity": "low",
    "web_search_options": {},
}
"""Values that request an unsupported feature."""
FIELDS = [(route, field) for route, (params, _, _) in ROUTES.items() for field in params.__annotations__]


def choices(client: TestClient, route: str, **changes: Any) -> Any:
    """The choices or embeddings of a response, without its id and time."""
    found = client.post(route, json=ROUTES[route][2] | changes)
    assert found.status_code == 200, found.text
    return [json.dumps(one) for one in found.json().get("choices") or found.json()["data"]]


@pytest.mark.parametrize("route", ROUTES)
def test_every_openai_field_is_known(route: str) -> None:
    params, schema, _ = ROUTES[route]
    assert params.__annotations__.keys() - {"stream"} <= schema.__pydantic_fields__.keys()


@pytest.mark.parametrize("route", ROUTES)
def test_neutral_values_have_no_effect(client: TestClient, route: str) -> None:
    plain = choices(client, route)
    for field in ROUTES[route][0].__annotations__.keys() - REQUIRED:
        for value in [None, *NEUTRAL.get(field, [])]:
            assert choices(client, route, **{field: value}) == plain, f"{field}: {value}"


@pytest.mark.parametrize(("route", "field"), [one for one in FIELDS if one[1] in UNSUPPORTED])
def test_unsupported_fields_are_rejected_by_name(client: TestClient, route: str, field: str) -> None:
    error = client.post(route, json=ROUTES[route][2] | {field: UNSUPPORTED[field]}).json()["error"]
    assert error["param"] == field and f"{field}: not supported by this server: remove it" in error["message"]


def test_every_field_is_supported_or_rejected() -> None:
    supported = {
        "logit_bias",
        "logprobs",
        "top_logprobs",
        "n",
        "response_format",
        "stop",
        "stream_options",
        "temperature",
    }
    supported |= {"frequency_penalty", "presence_penalty", "top_p", "dimensions", "encoding_format"}
    ignored = {"user", "safety_identifier", "prompt_cache_key", "parallel_tool_calls"}
    assert {field for _, field in FIELDS} == supported | ignored | REQUIRED | UNSUPPORTED.keys()


def test_a_message_of_a_response_can_be_sent_back(client: TestClient) -> None:
    own = {"role": "assistant", "content": "b", "refusal": None, "tool_calls": None, "audio": None, "annotations": []}
    choices(client, "/v1/chat/completions", messages=[{"role": "user", "content": "a"}, own])


@pytest.mark.parametrize(("route", "temperature"), [("/v1/completions", 0), ("/v1/chat/completions", 1.0)])
def test_a_logit_bias_bans_or_forces_a_token(client: TestClient, route: str, temperature: float) -> None:
    x, y = (str(id) for id in words().encode(["xy"])[0])

    def letters(bias: dict[str, float]) -> set[str]:
        choice = json.loads(choices(client, route, logit_bias=bias, temperature=temperature)[0])
        return set(choice.get("text", choice.get("message", {}).get("content")))

    assert letters({x: 100}) == {"x"} and letters({x: -100, y: 100}) == {"y"}
    assert letters({x: 100, y: 100}) <= {"x", "y"} and not letters({x: -100, y: -100}) & {"x", "y"}


def test_a_logit_bias_applies_to_its_own_request_only(registry: ModelRegistry, client: TestClient) -> None:
    plain = choices(client, "/v1/completions", prompt=["sea"] * 3)
    choices(client, "/v1/completions", prompt=["sea"] * 3, logit_bias={"70": 100})
    assert choices(client, "/v1/completions", prompt=["sea"] * 3) == plain
    assert not any(deployment.engine.stats.errors for deployment in registry.deployments.values())


@pytest.mark.parametrize(
    ("bias", "message"),
    [
        ({"263": 1}, "logit_bias.263: expected a token id from 0 to 262, got 263"),
        ({"a": 1}, "logit_bias.a: expected a token id and a number from -100 to 100"),
        ({"5": 101}, "logit_bias.5: expected a token id and a number from -100 to 100"),
        ({"5": True}, "logit_bias.5: expected a token id and a number"),
        ({str(id): 1 for id in range(1025)}, "logit_bias: expected at most 1,024 token ids, got 1,025"),
        ([1], "logit_bias: expected an object of token ids and numbers, got a list"),
    ],
)
def test_an_invalid_logit_bias_is_rejected(client: TestClient, bias: Any, message: str) -> None:
    found = client.post("/v1/completions", json={"model": "gpt", "prompt": "a", "logit_bias": bias})
    assert found.status_code == 400 and found.json()["error"]["message"].startswith(message), found.text
