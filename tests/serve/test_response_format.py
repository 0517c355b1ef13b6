"""Answers in the form of JSON, whatever the model would rather say; schemas of strangers are bounded."""

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


def asked(client: TestClient, form: dict[str, Any], **changes: Any) -> Any:
    body = {"model": "chat", "messages": MESSAGES, "response_format": form, "max_tokens": 30, "seed": 3}
    return client.post("/v1/chat/completions", json=body | changes)


def by_schema(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}


@pytest.mark.parametrize("temperature", [0, 1.5])
def test_a_response_follows_its_json_schema(client: TestClient, temperature: float) -> None:
    found = asked(client, by_schema(SCHEMA), temperature=temperature, n=3).json()
    for choice in found["choices"]:
        answer = json.loads(choice["message"]["content"])
        assert answer.keys() == {"name", "age"} and answer["name"] in "ab" and 0 <= answer["age"] <= 9
        assert choice["finish_reason"] == "stop"


def test_json_object_returns_an_object(client: TestClient) -> None:
    content = asked(client, {"type": "json_object"}).json()["choices"][0]["message"]["content"]
    assert content.startswith("{")


def test_a_response_format_applies_to_its_own_request_only(client: TestClient) -> None:
    plain = asked(client, {"type": "text"}).json()["choices"]
    assert asked(client, by_schema(SCHEMA)).json()["choices"] != plain
    assert asked(client, {"type": "text"}).json()["choices"] == plain


def deep(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "integer"}
    for _ in range(depth // 2):
        found = {"type": "object", "properties": {"a": found}}
    return found


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no schema": ({"type": "json_schema"}, "response_format.json_schema: expected a schema"),
    "a kind that is none": ({"type": "yaml"}, "response_format.type: expected 'text', 'json_object' or 'json_schema'"),
    "large": (by_schema({"enum": ["x" * MAX_SCHEMA_CHARS]}), f"at most {MAX_SCHEMA_CHARS:,} characters"),
    "deep": (by_schema(deep(MAX_SCHEMA_DEPTH + 2)), f"{MAX_SCHEMA_DEPTH} nested levels"),
    "another site": (by_schema({"$ref": "http://127.0.0.1/schema"}), "response_format: "),
    "a file": (by_schema({"$ref": "file:///etc/passwd"}), "response_format: "),
    "a type that is none": (by_schema({"type": "sum"}), "response_format: "),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_invalid_response_format_is_rejected(client: TestClient, name: str) -> None:
    form, message = REFUSED[name]
    found = asked(client, form)
    assert found.status_code == 400 and message in found.json()["error"]["message"], found.text
    assert "root:" not in found.text and len(found.text) < 1000


PATTERNS = ["(a|aa)+$", "(.*a){20}", "((a+)+)+b", "[^a]{5000}", "(?:a?){200}a{200}", "^((a{1,1000}){1,1000}){1,1000}$"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_made_to_take_long_ends_soon(client: TestClient, pattern: str) -> None:
    found = asked(client, by_schema({"type": "string", "pattern": pattern}), max_tokens=8)
    assert found.status_code in (200, 400)
    assert asked(client, {"type": "text"}).status_code == 200
