"""The official OpenAI client works, over a real socket."""

import asyncio
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from softlook.serve.engine.request import ServerLimits
from softlook.serve.registry import ModelRegistry
from tests.serve.sockets import serving
from tests.serve.tiny_models import everything

TOKEN = "correct-horse-battery-staple"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    registry = ModelRegistry(everything(), ServerLimits(max_queue=8))
    with serving(registry, TOKEN) as found:
        yield found
    assert not any(deployment.engine.is_alive for deployment in registry.deployments.values()), (
        "an engine outlives its server"
    )


@pytest.fixture
def client(address: str) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{address}/v1", api_key=TOKEN, max_retries=0) as client:
        yield client


def test_models_are_listed(client: Any) -> None:
    assert [model.id for model in client.models.list()] == ["gpt", "chat", "translate", "classify", "embed"]
    assert client.models.retrieve("gpt").id == "gpt"


def test_completions_are_returned_at_once_and_streamed(client: Any) -> None:
    body: dict[str, Any] = {"model": "gpt", "prompt": ["sea", "shells"], "max_tokens": 9, "seed": 1, "n": 2}
    full = client.completions.create(**body)
    assert [choice.index for choice in full.choices] == [0, 1, 2, 3] and full.usage.completion_tokens == 36
    generated = ["", "", "", ""]
    for chunk in client.completions.create(**body, stream=True):
        generated[chunk.choices[0].index] += chunk.choices[0].text
    assert generated == [choice.text for choice in full.choices]


def test_chats_are_returned_at_once_and_streamed(client: Any) -> None:
    body: dict[str, Any] = {"model": "chat", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}
    body |= {"seed": 4, "logprobs": True, "top_logprobs": 2}
    full = client.chat.completions.create(**body)
    choice = full.choices[0]
    assert choice.message.role == "assistant" and len(choice.logprobs.content) == 9
    generated, usage = "", None
    for chunk in client.chat.completions.create(**body, stream=True, stream_options={"include_usage": True}):
        generated += chunk.choices[0].delta.content or "" if chunk.choices else ""
        usage = chunk.usage or usage
    assert generated == choice.message.content and usage == full.usage


def test_embeddings_are_normalized_vectors(client: Any) -> None:
    found = client.embeddings.create(model="embed", input=["sea", "shells"])
    assert [len(one.embedding) for one in found.data] == [32, 32]
    assert sum(x * x for x in found.data[0].embedding) == pytest.approx(1, abs=1e-5)


def test_errors_have_the_types_of_the_client(client: Any, address: str) -> None:
    with pytest.raises(openai.BadRequestError, match="exceed the context of 64"):
        client.completions.create(model="gpt", prompt="a", max_tokens=1000)
    with pytest.raises(openai.NotFoundError, match="there is no model 'gpt-5'"):
        client.completions.create(model="gpt-5", prompt="a")
    with (
        openai.OpenAI(base_url=f"{address}/v1", api_key="wrong", max_retries=0) as unauthorized,
        pytest.raises(openai.AuthenticationError, match="a token is required"),
    ):
        unauthorized.models.list()


def test_a_full_queue_returns_retry_after(client: Any) -> None:
    with pytest.raises(openai.BadRequestError, match="Split the request"):
        client.completions.create(model="gpt", prompt=["a"] * 9)  # more than the whole queue

    async def send_all() -> list[Any]:
        async_client = openai.AsyncOpenAI(base_url=str(client.base_url), api_key=TOKEN, max_retries=0)
        body: dict[str, Any] = {"model": "gpt", "prompt": ["a"] * 4, "max_tokens": 60, "n": 2}
        async with async_client:
            return await asyncio.gather(
                *(async_client.completions.create(**body) for _ in range(40)), return_exceptions=True
            )

    found = asyncio.run(send_all())
    rejected = [one for one in found if isinstance(one, openai.RateLimitError)]
    assert (
        rejected and len(rejected) < 40 and all(1 <= int(one.response.headers["retry-after"]) <= 60 for one in rejected)
    )
    assert all(len(one.choices) == 8 for one in found if not isinstance(one, openai.RateLimitError))
