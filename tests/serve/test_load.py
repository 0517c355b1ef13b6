"""Load tests over real sockets: no response is lost or mixed up, and no resource leaks."""

import asyncio
import gc
import json
import random
import socket
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from softlook.decode.sampling import SamplingParams
from softlook.serve import server
from softlook.serve.engine.request import EngineRequest, ServerLimits
from softlook.serve.registry import ModelRegistry
from tests.serve.sockets import serving
from tests.serve.tiny_models import decoder, everything, generate_unbatched, loaded_model, words

NUM_DISTINCT = 60
TEXTS = ["sea", "shells", "she sells", "and so on", "日本", "🎉 ok", "", "a"]


def request_for(number: int) -> tuple[str, dict[str, Any]]:
    """One of NUM_DISTINCT requests, over all models."""
    rng = random.Random(number % NUM_DISTINCT)
    text = f"{rng.choice(TEXTS)} {number % NUM_DISTINCT}"
    limit = rng.randint(1, 12)
    sampling = {"temperature": rng.choice([0, 0.8]), "seed": number % NUM_DISTINCT, "max_tokens": limit}
    return (
        ("/v1/completions", {"model": "gpt", "prompt": text, **sampling, "n": rng.randint(1, 2)}),
        ("/v1/completions", {"model": "gpt", "prompt": text, **sampling, "stream": True}),
        ("/v1/chat/completions", {"model": "chat", "messages": [{"role": "user", "content": text}], **sampling}),
        ("/v1/translate", {"model": "translate", "text": text, "max_tokens": limit}),
        ("/v1/classify", {"model": "classify", "text": text}),
        ("/v1/embeddings", {"model": "embed", "input": text}),
    )[number % 6]


def content_of(page: str, text: str) -> Any:
    """The content of a response without id and time; floats are rounded."""
    if text.startswith("data: "):
        events = [json.loads(line[6:]) for line in text.split("\n\n") if line and line != "data: [DONE]"]
        return "".join(event["choices"][0]["text"] for event in events)
    found = json.loads(text)
    if page == "/v1/embeddings":
        return [[round(number, 3) + 0.0 for number in one["embedding"]] for one in found["data"]]
    if page == "/v1/classify":
        return [(one["label"], round(one["score"], 3)) for one in found["data"]]
    if page == "/v1/translate":
        return [one["text"] for one in found["data"]]
    return [one["text"] if "text" in one else one["message"]["content"] for one in found["choices"]]


def is_close(one: Any, other: Any) -> bool:
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(is_close, one, other))
    return one == pytest.approx(other, abs=0.003) if isinstance(one, float) else one == other


async def send_all(address: str, numbers: range, connections: int) -> dict[int, Any]:
    found: dict[int, Any] = {}
    remaining = iter(numbers)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=address, timeout=300, limits=limits, trust_env=False) as client:

        async def worker() -> None:
            for number in remaining:
                page, body = request_for(number)
                response = await client.post(page, json=body)
                assert response.status_code == 200, response.text
                found[number] = content_of(page, response.text)

        await asyncio.gather(*(worker() for _ in range(connections)))
    return found


def check_load(requests: int, connections: int) -> None:
    registry = ModelRegistry(everything(), ServerLimits(max_queue=20_000))
    with serving(registry) as address:
        expected = asyncio.run(send_all(address, range(NUM_DISTINCT), 1))
        found = asyncio.run(send_all(address, range(requests), connections))
        assert len(found) == requests
        wrong = [
            number for number, generated in found.items() if not is_close(generated, expected[number % NUM_DISTINCT])
        ]
        assert not wrong, [(request_for(n), found[n], expected[n % NUM_DISTINCT]) for n in wrong[:2]]
        end = time.monotonic() + 10  # a response is sent before its step is over
        while any(
            deployment.engine.num_running or deployment.engine.num_waiting
            for deployment in registry.deployments.values()
        ):
            assert time.monotonic() < end, "some requests are still running"
            time.sleep(0.01)
        assert sum(deployment.engine.stats.errors for deployment in registry.deployments.values()) == 0


def test_two_hundred_concurrent_clients_get_their_unbatched_responses() -> None:
    check_load(300, 200)


@pytest.mark.slow
def test_a_thousand_concurrent_clients_get_their_unbatched_responses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for deadline in (
        "HEADER_TIMEOUT",
        "DEFER_ACCEPT_SECONDS",
        "UNACKED_TIMEOUT",
    ):  # the clients share one interpreter with the server
        monkeypatch.setattr(server, deadline, 120)
    check_load(10_000, 1000)


@pytest.mark.slow
def test_ten_thousand_queued_requests_are_all_completed() -> None:
    registry = ModelRegistry([loaded_model("gpt", decoder())], ServerLimits(max_queue=10_000))
    deployment, own = registry.get("gpt", "completions"), words()
    outputs: dict[Any, Any] = {}
    requests = [
        EngineRequest((own.bos_id, 10 + i % 20, 10 + i % 7), max_new_tokens=1 + i % 5, sampling=SamplingParams(0.0))
        for i in range(10_000)
    ]
    requests = deployment.engine.submit(requests, lambda scheduled, output: outputs.update({scheduled: output}))
    end = time.monotonic() + 300
    while len(outputs) < len(requests):
        assert time.monotonic() < end, f"{len(outputs)} after 300 s"
        time.sleep(0.05)
    registry.close()
    expected: dict[Any, list[int]] = {}
    for scheduled in requests:
        key = (scheduled.request.prompt, scheduled.request.max_new_tokens)
        expected[key] = expected.get(key) or generate_unbatched(deployment.loaded.model, scheduled.request)
        assert scheduled.row.generated == expected[key]


def test_no_files_or_memory_leak() -> None:
    registry = ModelRegistry(everything(), ServerLimits(max_queue=20_000))
    with serving(registry) as address:
        asyncio.run(send_all(address, range(120), 40))  # warm up
        files, memory = open_files_and_memory()
        for _ in range(3):
            asyncio.run(send_all(address, range(120), 40))
        later_files, later_memory = open_files_and_memory()
    assert later_files <= files + 2, "files or sockets stay open"
    assert later_memory <= memory + 30 * 2**20, f"{(later_memory - memory) / 2**20:.0f} MiB more after 360 requests"


def open_files_and_memory() -> tuple[int, int]:
    """The number of open files and the resident memory in bytes, once both are stable."""
    end = time.monotonic() + 5
    gc.collect()
    files = len(list(Path("/proc/self/fd").iterdir()))
    while time.monotonic() < end:
        time.sleep(0.2)
        before, files = files, len(list(Path("/proc/self/fd").iterdir()))
        if before == files:
            break
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return files, pages * 4096


class SlowModel:
    """A model that sleeps at each step."""

    def __init__(self, seconds: float) -> None:
        self.model, self.seconds = decoder(), seconds
        self.original, self.model.forward = self.model.forward, self.forward

    def forward(self, *values: Any, **named: Any) -> Any:
        time.sleep(self.seconds)
        return self.original(*values, **named)


def open_request(address: str, body: dict[str, Any]) -> socket.socket:
    """Send a request on a socket that can be closed at any time."""
    content = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(content)}\r\n"
    connection = socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])))
    connection.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + content)
    return connection


@pytest.mark.parametrize("stream", [False, True], ids=["full", "streamed"])
def test_the_request_of_a_disconnected_client_is_aborted_within_a_second(stream: bool) -> None:
    registry = ModelRegistry([loaded_model("gpt", SlowModel(0.02).model)], ServerLimits(max_batch_size=2))
    engine = registry.deployments["gpt"].engine
    body = {"model": "gpt", "prompt": "sea", "max_tokens": 60, "temperature": 0, "stream": stream}
    with serving(registry) as address:
        clients = [open_request(address, body) for _ in range(4)]  # two running, two waiting
        end = time.monotonic() + 20
        while engine.num_running < 2 or engine.num_waiting < 2:
            assert time.monotonic() < end
            time.sleep(0.01)
        for client in clients:
            client.close()
        start = time.monotonic()
        while engine.num_running or engine.num_waiting:
            assert time.monotonic() - start < 1.0, "they are still running"
            time.sleep(0.01)
        response = httpx.post(f"{address}/v1/completions", json={**body, "max_tokens": 2, "stream": False}, timeout=30)
        assert response.status_code == 200 and engine.stats.cancelled == 4


def test_shutdown_finishes_running_requests_within_the_grace_period(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SHUTDOWN_GRACE", 1.0)
    registry = ModelRegistry([loaded_model("gpt", SlowModel(0.05).model)])
    body = {"model": "gpt", "prompt": "sea", "temperature": 0}
    with serving(registry) as address:
        clients = [open_request(address, {**body, "max_tokens": limit}) for limit in (5, 60)]
        while registry.deployments["gpt"].engine.num_running < 2:
            time.sleep(0.01)
        start = time.monotonic()
    assert time.monotonic() - start < 5
    for client, expected in zip(clients, (b"HTTP/1.1 200 OK", b"HTTP/1.1 503 Service Unavailable"), strict=True):
        client.settimeout(5)
        assert client.recv(1000).startswith(expected)
        client.close()


def test_shutdown_does_not_wait_for_idle_connections() -> None:
    with serving(ModelRegistry([loaded_model("gpt", decoder())])) as address:
        client = socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])))
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: local")  # never completed
        assert httpx.get(f"{address}/healthz", timeout=30).status_code == 200
        start = time.monotonic()
    assert time.monotonic() - start < server.FLUSH_TIMEOUT + 2
    client.close()


def test_a_slow_client_times_out_and_others_are_served() -> None:
    registry = ModelRegistry([loaded_model("gpt", decoder())], ServerLimits(read_timeout=0.5))
    with serving(registry) as address:
        port = int(address.rpartition(":")[2])
        slow = socket.create_connection(("127.0.0.1", port))
        slow.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n")
        start = time.monotonic()
        slow.settimeout(0.2)
        response = b""
        while b"\r\n\r\n" not in response:
            assert time.monotonic() - start < 10
            try:
                slow.sendall(b"a")
                response += slow.recv(1000)
            except TimeoutError:
                good = httpx.post(f"{address}/v1/completions", json={"model": "gpt", "prompt": "a"}, timeout=10)
                assert good.status_code == 200
        assert response.startswith(b"HTTP/1.1 408") and time.monotonic() - start < 5
        slow.close()


@pytest.mark.slow
def test_slow_clients_are_disconnected_within_thirty_seconds_and_others_are_unaffected() -> None:
    registry = ModelRegistry([loaded_model("gpt", decoder())])
    clients_by_kind = {
        "silent": (b"", b""),
        "slow head": (b"GET /healthz HTTP/1.1\r\nHost: local", b"x"),
        "slow body": (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999\r\n\r\n", b"a"),
        "idle": (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", b""),
    }
    with serving(registry) as address:
        idle_p99 = asyncio.run(p99_latency(address, 5.0))
        loaded_p99, num_open = asyncio.run(p99_with_slow_clients(address, clients_by_kind, 100))
    assert num_open == dict.fromkeys(clients_by_kind, 0)
    assert loaded_p99 < 2 * idle_p99 + 0.05, f"p99 {loaded_p99:.3f} s with slow clients, {idle_p99:.3f} s without"


async def p99_latency(address: str, seconds: float) -> float:
    """The 99th percentile of the response times of a short request, in seconds."""
    found = []
    async with httpx.AsyncClient(base_url=address, timeout=60, trust_env=False) as client:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            start = time.monotonic()
            response = await client.post("/v1/completions", json={"model": "gpt", "prompt": "a", "max_tokens": 4})
            assert response.status_code == 200
            found.append(time.monotonic() - start)
    return sorted(found)[int(0.99 * (len(found) - 1))]


async def p99_with_slow_clients(
    address: str, clients_by_kind: dict[str, Any], count: int
) -> tuple[float, dict[str, int]]:
    port = int(address.rpartition(":")[2])
    open_connections = dict.fromkeys(clients_by_kind, 0)

    async def one(kind: str) -> None:
        head, more = clients_by_kind[kind]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        open_connections[kind] += 1
        try:
            writer.write(head)
            closed = asyncio.create_task(reader.read())
            while not (await asyncio.wait([closed], timeout=1.0))[0]:
                writer.write(more)
        except OSError:
            pass
        finally:
            open_connections[kind] -= 1
            writer.close()

    tasks = [asyncio.create_task(one(kind)) for kind in clients_by_kind for _ in range(count)]
    latency = await p99_latency(address, 29.0)
    await asyncio.sleep(1.0)
    left = dict(open_connections)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return latency, left
