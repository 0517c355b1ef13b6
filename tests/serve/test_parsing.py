"""Request bodies are parsed with bounded cost, and an invalid one gets one clear error."""

import json
import tracemalloc
from typing import Any

import pytest
from pydantic import ValidationError
from starlette.testclient import TestClient

from softlook.serve.protocol.parsing import MAX_CONTAINERS, BadRequestError, StrictModel, parse
from softlook.serve.protocol.requests import (
    MAX_COLUMNS,
    ChatRequest,
    ClassificationRequest,
    CompletionRequest,
    EmbeddingRequest,
    PredictionRequest,
    TranslationRequest,
)

MANY = {f"x{number}": 1 for number in range(80_000)}
EMPTY: list[Any] = [[] for _ in range(300_000)]
HOSTILE: dict[str, tuple[type[StrictModel], dict[str, Any]]] = {
    "wrong ids": (CompletionRequest, {"prompt": [["-1"] * 5000] * 64}),
    "ids below zero": (CompletionRequest, {"prompt": [[-1] * 5000] * 64}),
    "floats for ids": (EmbeddingRequest, {"input": [[0.5] * 5000] * 64}),
    "empty lists": (CompletionRequest, {"prompt": EMPTY}),
    "fewer empty lists": (CompletionRequest, {"prompt": EMPTY[:MAX_CONTAINERS]}),
    "numbers for texts": (TranslationRequest, {"text": ["a", *[1] * 200_000]}),
    "nulls for texts": (ClassificationRequest, {"text": [None] * 200_000}),
    "unknown fields": (CompletionRequest, {"prompt": "a", **MANY}),
    "unknown fields in an object": (ChatRequest, {"messages": [], "stream_options": MANY}),
    "unknown fields in a message": (ChatRequest, {"messages": [{"role": "user", "content": "a", **MANY}]}),
    "empty messages": (ChatRequest, {"messages": [{} for _ in range(40_000)]}),
    "empty parts": (ChatRequest, {"messages": [{"role": "user", "content": EMPTY[:40_000]}]}),
    "empty stop strings": (CompletionRequest, {"prompt": "a", "stop": [""] * 200_000}),
    "lists for cells": (PredictionRequest, {"rows": [{"a": []} for _ in range(20_000)]}),
    "too many columns": (PredictionRequest, {"columns": MANY}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_many_errors_cost_one_error_and_little_memory(name: str) -> None:
    schema, fields = HOSTILE[name]
    value = {"model": "gpt", **fields}
    body = json.dumps(value).encode()
    tracemalloc.start()
    try:
        parse(schema, body)
    except BadRequestError as error:
        assert len(str(error)) < 300 and "constrained" not in str(error)
    else:
        assert name == "ids below zero"  # the vocabulary is checked later, with the model
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30 * len(body)
    try:
        schema.model_validate(value)
    except ValidationError as error:
        assert error.error_count() <= 3


def schemas_in(schema: Any) -> list[dict[str, Any]]:
    """All nested schemas of a pydantic core schema."""
    if isinstance(schema, list | tuple):
        return [found for part in schema for found in schemas_in(part)]
    if not isinstance(schema, dict):
        return []
    return [schema, *(found for part in schema.values() for found in schemas_in(part))]


@pytest.mark.parametrize("schema", list(dict.fromkeys(schema for schema, _ in HOSTILE.values())))
def test_every_list_of_a_request_has_a_max_length_and_fails_fast(schema: type[StrictModel]) -> None:
    parts = schemas_in(schema.__pydantic_core_schema__)
    lists = [part for part in parts if part.get("type") == "list"]
    assert all(part.get("fail_fast") and part.get("max_length") for part in lists)
    assert lists and not [part for part in parts if part.get("type") == "union" and "custom_error_type" not in part]
    assert all(part.get("max_length", MAX_COLUMNS) <= MAX_COLUMNS for part in parts if part.get("type") == "dict")


MESSAGES = {
    "prompt[3][17]: expected an integer, got 1.5": {"prompt": [[1]] * 3 + [[2] * 17 + [1.5]]},
    "prompt[0][2]: expected a token id from 0 to 262, got -1": {"prompt": [[1, 2, -1]]},
    "prompt[1]: expected a token id from 0 to 262, got 263": {"prompt": [1, 263]},
    "prompt[1]: expected a string, got 7": {"prompt": ["a", 7]},
    "prompt: expected a string, a list of strings, a list of token ids or a list of lists of them, got 3": {
        "prompt": 3
    },
    "prompt: expected at most 64 entries, got a list of 65 entries": {"prompt": ["a"] * 65},
    'n: expected an integer, got "2"': {"n": "2"},
    "temperature: expected at most 2.0, got 3": {"temperature": 3},
    "stop[0]: expected a string that is not empty, got": {"stop": [""]},
    "stream: expected true or false, got a string of 100 characters": {"stream": "y" * 100},
    "temprature: unknown field. Did you mean temperature?": {"temprature": 1},
    "stream_options.usage: unknown field": {"stream_options": {"usage": True}},
}


@pytest.mark.parametrize("message", MESSAGES)
def test_an_error_names_the_json_path_and_the_expected_and_actual_values(client: TestClient, message: str) -> None:
    found = client.post("/v1/completions", json={"model": "gpt", "prompt": "a", **MESSAGES[message]})
    error = found.json()["error"]
    assert found.status_code == 400 and error["message"].startswith(message), error["message"]
    assert error["param"] == message.partition(":")[0]


def test_a_missing_field_is_named(client: TestClient) -> None:
    found = client.post("/v1/completions", json={"prompt": "a"}).json()["error"]
    assert found["message"] == "model: this field is required: add it" and found["param"] == "model"


def test_brackets_in_a_text_are_not_counted_as_lists() -> None:
    body = CompletionRequest.model_validate({"model": "gpt", "prompt": '[{\\"' * MAX_CONTAINERS})
    assert parse(CompletionRequest, body.model_dump_json(include={"model", "prompt"}).encode()).prompt == body.prompt


@pytest.mark.parametrize(
    "content_type", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]
)
def test_a_body_without_a_json_content_type_is_rejected(client: TestClient, content_type: str | None) -> None:
    headers = {} if content_type is None else {"content-type": content_type}
    found = client.post("/v1/completions", content=b'{"model": "gpt", "prompt": "a"}', headers=headers)
    assert found.status_code == 400 and "Content-Type: application/json" in found.json()["error"]["message"]
