"""Responses are constrained to JSON and JSON schemas; untrusted schemas are bounded."""

import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from softlook.serve.protocol.preprocess import MAX_SCHEMA_CHARS, MAX_SCHEMA_DEPTH

pytest.importorskip("llguidance")
MESSAGES = [{"role": "user", "content": "hi"}]
SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["a", "b"]}, "age": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def post_chat(client: TestClient, response_format: dict[str, Any], **changes: Any) -> Any:
    body = {"model": "chat", "messages": MESSAGES, "response_format": response_format, "max_tokens": 30, "seed": 3}
    return client.post("/v1/chat/completions", json=body | changes)


def json_schema_format(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}


@pytest.mark.parametrize("temperature", [0, 1.5])
def test_a_response_follows_its_json_schema(client: TestClient, temperature: float) -> None:
    found = post_chat(client, json_schema_format(SCHEMA), temperature=temperature, n=3).json()
    for choice in found["choices"]:
        content = json.loads(choice["message"]["content"])
        assert content.keys() == {"name", "age"} and content["name"] in "ab" and 0 <= content["age"] <= 9
        assert choice["finish_reason"] == "stop"


def test_json_object_returns_an_object(client: TestClient) -> None:
    content = post_chat(client, {"type": "json_object"}).json()["choices"][0]["message"]["content"]
    assert content.startswith("{")


def test_a_response_format_applies_to_its_own_request_only(client: TestClient) -> None:
    plain = post_chat(client, {"type": "text"}).json()["choices"]
    assert post_chat(client, json_schema_format(SCHEMA)).json()["choices"] != plain
    assert post_chat(client, {"type": "text"}).json()["choices"] == plain


def nested_schema(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "integer"}
    for _ in range(depth // 2):
        found = {"type": "object", "properties": {"a": found}}
    return found


INVALID: dict[str, tuple[dict[str, Any], str]] = {
    "no schema": ({"type": "json_schema"}, "response_format.json_schema: expected a schema"),
    "an unknown response format": (
        {"type": "yaml"},
        'response_format.type: expected "text", "json_object" or "json_schema"',
    ),
    "large": (json_schema_format({"enum": ["x" * MAX_SCHEMA_CHARS]}), f"at most {MAX_SCHEMA_CHARS:,} characters"),
    "deep": (json_schema_format(nested_schema(MAX_SCHEMA_DEPTH + 2)), f"{MAX_SCHEMA_DEPTH} nested levels"),
    "a remote reference": (json_schema_format({"$ref": "http://127.0.0.1/schema"}), "response_format: "),
    "a file reference": (json_schema_format({"$ref": "file:///etc/passwd"}), "response_format: "),
    "an unknown schema type": (json_schema_format({"type": "sum"}), "response_format: "),
}


@pytest.mark.parametrize("name", INVALID)
def test_an_invalid_response_format_is_rejected(client: TestClient, name: str) -> None:
    response_format, message = INVALID[name]
    found = post_chat(client, response_format)
    assert found.status_code == 400 and message in found.json()["error"]["message"], found.text
    assert "root:" not in found.text and len(found.text) < 1000


PATTERNS = ["(a|aa)+$", "(.*a){20}", "((a+)+)+b", "[^a]{5000}", "(?:a?){200}a{200}", "^((a{1,1000}){1,1000}){1,1000}$"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_an_expensive_pattern_ends_quickly(client: TestClient, pattern: str) -> None:
    found = post_chat(client, json_schema_format({"type": "string", "pattern": pattern}), max_tokens=8)
    assert found.status_code in (200, 400)
    assert post_chat(client, {"type": "text"}).status_code == 200
