"""Responses of the routes: correct outputs for valid requests, helpful errors for invalid ones."""

import base64
import json
import struct
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient

from softlook.decode.sampling import SamplingParams
from softlook.serve.engine.request import EngineRequest, ServerLimits
from softlook.serve.registry import ModelRegistry
from tests.serve.tiny_models import CONTEXT, TEMPLATE, generate_unbatched, words

MESSAGES = [{"role": "user", "content": "sea shells?"}]


def post(client: TestClient, route: str, **body: Any) -> Any:
    return client.post(route, json=body)


def events(text: str) -> list[Any]:
    """The events of a stream, without [DONE]."""
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    return list(map(json.loads, lines))


def test_models_are_listed_with_their_capabilities(client: TestClient) -> None:
    found = client.get("/v1/models").json()["data"]
    assert {one["id"]: one["capabilities"] for one in found} == {
        "gpt": ["completions"],
        "chat": ["completions", "chat"],
        "translate": ["translate"],
        "classify": ["classify"],
        "embed": ["embeddings"],
    }
    assert client.get("/v1/models/gpt").json() == found[0]


def test_a_completion_equals_unbatched_generation(client: TestClient, registry: ModelRegistry) -> None:
    body = {"prompt": "sea", "temperature": 0.7, "top_p": 0.9, "seed": 5, "max_tokens": 12}
    found = post(client, "/v1/completions", model="gpt", **body).json()
    tokenizer, model = words(), registry.get("gpt", "completions").loaded.model
    ids = (tokenizer.bos_id, *tokenizer.encode(["sea"])[0])
    generated = generate_unbatched(
        model,
        EngineRequest(
            ids,
            max_new_tokens=12,
            sampling=SamplingParams(0.7, top_p=0.9),
            seed=5,
            eos_ids=frozenset({tokenizer.eos_id}),
        ),
    )
    assert found["choices"][0]["text"] == tokenizer.decode(generated)
    assert found["usage"]["prompt_tokens"] == 4 and found["usage"]["completion_tokens"] == 12


@pytest.mark.parametrize("route", ["/v1/completions", "/v1/chat/completions"])
def test_a_concatenated_stream_equals_the_full_response(client: TestClient, route: str) -> None:
    body: dict[str, Any] = {"model": "chat", "seed": 3, "n": 2, "max_tokens": 20, "temperature": 1.5}
    body |= {"prompt": "déjà"} if route == "/v1/completions" else {"messages": MESSAGES}
    full = post(client, route, **body).json()
    parts = events(post(client, route, **body, stream=True, stream_options={"include_usage": True}).text)
    usage = parts.pop()
    assert usage["choices"] == [] and usage["usage"] == full["usage"]
    for choice in full["choices"]:
        own = [part["choices"][0] for part in parts if part["choices"][0]["index"] == choice["index"]]
        generated = "".join(one["text"] if "text" in one else one["delta"].get("content", "") for one in own)
        assert generated == (choice["text"] if "text" in choice else choice["message"]["content"])
        assert [one["finish_reason"] for one in own][-1] == choice["finish_reason"]


def test_a_character_of_several_tokens_is_streamed_as_one(client: TestClient, registry: ModelRegistry) -> None:
    """The tokens are bytes. The model generates characters of two, three and four of them."""
    tokenizer, model = words(), registry.get("gpt", "completions").loaded.model
    output_ids = tokenizer.encode(["né 日本 🎉!"])[0]
    original = model.forward

    def forward(ids: torch.Tensor, **named: Any) -> torch.Tensor:
        logits = torch.zeros_like(original(ids, **named))
        positions = named.get("positions")
        step = (int(positions[0, -1]) if positions is not None else ids.shape[1] - 1) - 1
        logits[:, -1, [*output_ids, tokenizer.eos_id][min(step, len(output_ids))]] = 50.0
        return logits

    model.forward = forward
    try:
        found = post(client, "/v1/completions", model="gpt", prompt="a", stream=True, max_tokens=30, temperature=0)
    finally:
        model.forward = original
    outputs = [event["choices"][0]["text"] for event in events(found.text)]
    assert outputs == [*"né 日本 🎉!", ""] and "�" not in found.text


def test_a_stop_string_ends_the_text_and_is_not_returned(client: TestClient) -> None:
    body: dict[str, Any] = {"model": "gpt", "prompt": "sea", "seed": 1, "max_tokens": 20, "temperature": 1.0}
    full = post(client, "/v1/completions", **body).json()["choices"][0]["text"]
    stop = full[4:6]
    short = post(client, "/v1/completions", **body, stop=stop).json()["choices"][0]
    assert short["text"] == full[: full.index(stop)] and short["finish_reason"] == "stop"


def test_logprobs_have_the_top_alternatives(client: TestClient) -> None:
    body: dict[str, Any] = {"model": "chat", "max_tokens": 4, "temperature": 0}
    logprobs = post(client, "/v1/completions", **body, prompt="sea", logprobs=3).json()["choices"][0]["logprobs"]
    assert len(logprobs["tokens"]) == len(logprobs["token_logprobs"]) == 4
    best = [max(top.values()) for top in logprobs["top_logprobs"]]
    assert best == logprobs["token_logprobs"]
    streamed = events(post(client, "/v1/completions", **body, prompt="sea", logprobs=3, stream=True).text)
    values = [value for event in streamed for value in event["choices"][0]["logprobs"]["token_logprobs"]]
    assert values == logprobs["token_logprobs"]
    generated = post(client, "/v1/chat/completions", **body, messages=MESSAGES, logprobs=True, top_logprobs=2).json()
    content = generated["choices"][0]["logprobs"]["content"]
    assert len(content) == 4 and all(len(one["top_logprobs"]) == 2 for one in content)


def test_a_conversation_is_rendered_by_the_chat_template(client: TestClient, registry: ModelRegistry) -> None:
    body: dict[str, Any] = {"model": "chat", "max_tokens": 6, "seed": 2}
    chat = post(client, "/v1/chat/completions", **body, messages=MESSAGES).json()
    tokenizer = words()
    prompt = tokenizer.encode(["[user] sea shells?\n[assistant] "])[0]
    completion = post(client, "/v1/completions", **body, prompt=prompt).json()
    assert chat["choices"][0]["message"]["content"] == completion["choices"][0]["text"]
    assert TEMPLATE.startswith("{% for m in messages %}[{{ m.role }}]")


def test_text_parts_of_a_message_are_concatenated(client: TestClient) -> None:
    parts = [{"type": "text", "text": "sea "}, {"type": "text", "text": "shells?"}]
    body: dict[str, Any] = {"model": "chat", "max_tokens": 6, "seed": 2}
    split = post(client, "/v1/chat/completions", **body, messages=[{"role": "user", "content": parts}]).json()
    full = post(client, "/v1/chat/completions", **body, messages=MESSAGES).json()
    assert split["choices"] == full["choices"]


def test_embeddings_are_normalized_in_both_encodings(client: TestClient) -> None:
    as_floats = post(client, "/v1/embeddings", model="embed", input=["sea", "shells"]).json()
    as_base64 = post(client, "/v1/embeddings", model="embed", input=["sea", "shells"], encoding_format="base64").json()
    for one, other in zip(as_floats["data"], as_base64["data"], strict=True):
        numbers = struct.unpack("<32f", base64.b64decode(other["embedding"]))
        assert list(numbers) == pytest.approx(one["embedding"]) and sum(x * x for x in numbers) == pytest.approx(1)
    by_ids = post(client, "/v1/embeddings", model="embed", input=words().encode(["sea"])[0]).json()
    assert by_ids["data"][0]["embedding"] == pytest.approx(as_floats["data"][0]["embedding"], rel=1e-4, abs=1e-6)


def test_classes_have_probabilities(client: TestClient, registry: ModelRegistry) -> None:
    found = post(client, "/v1/classify", model="classify", text=["sea", "shells"], text_pair=["a", "b"]).json()["data"]
    tokenizer, model = words(), registry.get("classify", "classify").loaded.model
    one, other = tokenizer.encode(["sea", "a"])
    ids = [tokenizer.cls_id, *one, tokenizer.sep_id, *other, tokenizer.sep_id]
    token_types = [0] * (len(one) + 2) + [1] * (len(other) + 1)
    with torch.no_grad():
        expected = model(torch.tensor([ids]), token_types=torch.tensor([token_types])).softmax(-1)[0]
    scores = {score["label"]: score["score"] for score in found[0]["scores"]}
    assert [scores[label] for label in ("bad", "fair", "good")] == pytest.approx(expected.tolist(), rel=1e-4)
    assert found[0]["label"] == max(scores, key=lambda label: scores[label]) and len(found) == 2


def test_translations_equal_unbatched_generation(client: TestClient, registry: ModelRegistry) -> None:
    found = post(
        client, "/v1/translate", model="translate", text=["sea", "she sells"], max_tokens=8, num_beams=1
    ).json()["data"]
    tokenizer, model = words(), registry.get("translate", "translate").loaded.model
    for text, one in zip(["sea", "she sells"], found, strict=True):
        source = (*tokenizer.encode([text])[0], tokenizer.eos_id)
        request = EngineRequest(
            (tokenizer.bos_id,),
            source,
            max_new_tokens=8,
            sampling=SamplingParams(temperature=0),
            eos_ids=frozenset({tokenizer.eos_id}),
        )
        assert one["text"] == tokenizer.decode(generate_unbatched(model, request))


@pytest.mark.parametrize("length", [0, 1, CONTEXT - 2, CONTEXT - 1, CONTEXT, CONTEXT + 1, 5000])
def test_prompts_longer_than_the_context_are_rejected(client: TestClient, length: int) -> None:
    found = post(client, "/v1/completions", model="gpt", prompt="a" * length)
    assert found.status_code == (200 if length <= CONTEXT - 2 else 400)  # a start token, and space for one new token
    if found.status_code == 400:
        assert "the maximum is 62" in found.json()["error"]["message"] or "longer than" in found.text
    by_ids = post(client, "/v1/completions", model="gpt", prompt=[20] * max(length, 1))
    assert by_ids.status_code == (200 if max(length, 1) <= CONTEXT - 1 else 400)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown field": ({"suffix": "x"}, "suffix"),
    "a number as a string": ({"n": "2"}, "n: expected an integer"),
    "a boolean as a number": ({"n": True}, "n: expected an integer"),
    "too many choices": ({"n": 17}, "n: expected at most 16, got 17"),
    "no choices": ({"n": 0}, "n: expected at least 1, got 0"),
    "a negative limit": ({"max_tokens": -1}, "max_tokens: expected at least 1, got -1"),
    "a limit beyond the context": ({"max_tokens": 100}, "exceed the context of 64"),
    "a seed too large": ({"seed": 2**63}, "seed: expected at most"),
    "a temperature too high": ({"temperature": 2.1}, "temperature: expected at most 2"),
    "too many alternatives": ({"logprobs": 21}, "logprobs: expected at most 20"),
    "too many stop strings": ({"stop": ["a"] * 5}, "stop"),
    "an empty stop string": ({"stop": ""}, "stop"),
    "a probability above one": ({"top_p": 1.5}, "top_p: expected at most 1"),
    "an id beyond the vocabulary": ({"prompt": [5_000]}, "prompt[0]: expected a token id from 0 to"),
    "a negative id": ({"prompt": [-1]}, "prompt"),
    "no prompts": ({"prompt": []}, "prompt"),
    "too many prompts": ({"prompt": ["a"] * 65}, "prompt"),
    "a URL as a prompt": ({"prompt": {"url": "http://127.0.0.1/"}}, "prompt"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_an_invalid_request_names_the_field_and_what_was_expected(client: TestClient, wrong: str) -> None:
    body, message = WRONG[wrong]
    found = post(client, "/v1/completions", **({"model": "gpt", "prompt": "a"} | body))
    assert found.status_code == 400 and found.json()["error"]["type"] == "invalid_request_error"
    assert message in found.json()["error"]["message"] or message in str(found.json()["error"]["param"])


MALFORMED: dict[str, bytes] = {
    "NaN": b'{"model": "gpt", "prompt": "a", "temperature": NaN}',
    "infinity": b'{"model": "gpt", "prompt": "a", "temperature": Infinity}',
    "1e999": b'{"model": "gpt", "prompt": "a", "temperature": 1e999}',
    "many digits": b'{"model": "gpt", "prompt": "a", "n": ' + b"9" * 5000 + b"}",
    "deep": b"[" * 100_000,
    "deep and closed": b'{"model": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    "empty": b"",
    "not JSON": b"model=gpt",
    "a list": b"[]",
    "not UTF-8": b'{"model": "gpt", "prompt": "\xff\xfe"}',
    "null": b"null",
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_body_is_rejected(client: TestClient, name: str) -> None:
    found = client.post("/v1/completions", content=MALFORMED[name], headers={"content-type": "application/json"})
    assert found.status_code == 400 and found.json()["error"]["message"]
    assert post(client, "/v1/completions", model="gpt", prompt="a").status_code == 200


def test_unpaired_surrogates_are_handled(client: TestClient) -> None:
    body = b'{"model": "gpt", "prompt": "a\\ud800b", "max_tokens": 2}'
    found = client.post("/v1/completions", content=body, headers={"content-type": "application/json"})
    assert found.status_code in (200, 400)  # pydantic may reject them before the tokenizer replaces them
    assert client.get("/healthz").status_code == 200


def test_products_of_valid_parameters_are_bounded(client: TestClient, registry: ModelRegistry) -> None:
    registry.limits, before = ServerLimits(max_request_tokens=1000), registry.limits
    try:
        found = post(client, "/v1/completions", model="gpt", prompt=["a"] * 8, n=4, max_tokens=10, logprobs=3)
    finally:
        registry.limits = before
    assert found.status_code == 400 and "1,280 in total; the maximum is 1,000" in found.json()["error"]["message"]


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("/v1/chat/completions", {"model": "gpt", "messages": MESSAGES}),
        ("/v1/completions", {"model": "translate", "prompt": "a"}),
        ("/v1/embeddings", {"model": "classify", "input": "a"}),
        ("/v1/translate", {"model": "gpt", "text": "a"}),
        ("/v1/classify", {"model": "embed", "text": "a"}),
    ],
)
def test_an_unsupported_route_names_the_supported_ones(client: TestClient, route: str, body: dict[str, Any]) -> None:
    found = post(client, route, **body)
    assert found.status_code == 400 and "does not support" in found.json()["error"]["message"]


@pytest.mark.parametrize("name", ["nobody", "../../etc/passwd", "/etc/passwd", "http://127.0.0.1/", "gpt\x00"])
def test_a_model_is_a_name_and_never_a_path(client: TestClient, name: str) -> None:
    found = post(client, "/v1/completions", model=name, prompt="a")
    assert found.status_code == 404 and found.json()["error"]["code"] == "model_not_found"


def test_an_unhealthy_engine_is_reported_by_healthz(registry: ModelRegistry, client: TestClient) -> None:
    engine = registry.deployments["gpt"].engine
    assert client.get("/healthz").json()["status"] == "ok"
    engine.error = "the model failed 3 times in a row"
    try:
        health, found = client.get("/healthz"), post(client, "/v1/completions", model="gpt", prompt="a")
    finally:
        engine.error = None
    assert health.status_code == 503 and health.json()["models"]["gpt"] == "the model failed 3 times in a row"
    assert found.status_code == 200 and client.get("/healthz").status_code == 200


def test_metrics_count_requests_and_tokens(client: TestClient) -> None:
    post(client, "/v1/completions", model="gpt", prompt="a", max_tokens=3, temperature=0)
    client.get("/no/such/page-1")
    client.get("/no/such/page-2")
    text = client.get("/metrics").text
    assert 'softlook_http_requests_total{route="/v1/completions",status="200"}' in text
    assert 'softlook_http_requests_total{route="other",status="404"}' in text and "page-1" not in text
    assert 'softlook_generation_tokens_total{model="gpt"}' in text
    assert 'softlook_num_requests_waiting{model="gpt"} 0.0' in text
    for name in ("time_to_first_token_seconds", "inter_token_latency_seconds"):
        assert f'softlook_{name}_count{{model="gpt"}}' in text
