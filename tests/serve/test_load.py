"""Many at once, over real sockets: nothing is lost, nothing is mixed up, nothing is left behind."""

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
from softlook.serve.engine.request import EngineRequest
from softlook.serve.limits import ServerLimits
from softlook.serve.registry import ModelRegistry
from tests.serve.sockets import serving
from tests.serve.tiny_models import alone, decoder, everything, loaded_model, words

DIFFERENT = 60
WORDS = ["sea", "shells", "she sells", "and so on", "日本", "🎉 ok", "", "a"]


def question(number: int) -> tuple[str, dict[str, Any]]:
    """One of some different things to ask, of every model there is."""
    rng = random.Random(number % DIFFERENT)
    text = f"{rng.choice(WORDS)} {number % DIFFERENT}"
    limit = rng.randint(1, 12)
    drawn = {"temperature": rng.choice([0, 0.8]), "seed": number % DIFFERENT, "max_tokens": limit}
    return (
        ("/v1/completions", {"model": "gpt", "prompt": text, **drawn, "n": rng.randint(1, 2)}),
        ("/v1/completions", {"model": "gpt", "prompt": text, **drawn, "stream": True}),
        ("/v1/chat/completions", {"model": "chat", "messages": [{"role": "user", "content": text}], **drawn}),
        ("/v1/translate", {"model": "translate", "text": text, "max_tokens": limit}),
        ("/v1/classify", {"model": "classify", "text": text}),
        ("/v1/embeddings", {"model": "embed", "input": text}),
    )[number % 6]


def gist(page: str, text: str) -> Any:
    """What an answer says, without when and under which number it was said; numbers as far as they are sure."""
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


def near(one: Any, other: Any) -> bool:
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(near, one, other))
    return one == pytest.approx(other, abs=0.003) if isinstance(one, float) else one == other


async def all_of_them(address: str, numbers: range, connections: int) -> dict[int, Any]:
    found: dict[int, Any] = {}
    waiting = iter(numbers)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=address, timeout=300, limits=limits, trust_env=False) as client:

        async def one_after_the_other() -> None:
            for number in waiting:
                page, body = question(number)
                answer = await client.post(page, json=body)
                assert answer.status_code == 200, answer.text
                found[number] = gist(page, answer.text)

        await asyncio.gather(*(one_after_the_other() for _ in range(connections)))
    return found


def check_load(requests: int, connections: int) -> None:
    registry = ModelRegistry(everything(), ServerLimits(max_queue=20_000))
    with serving(registry) as address:
        alone_each = asyncio.run(all_of_them(address, range(DIFFERENT), 1))
        found = asyncio.run(all_of_them(address, range(requests), connections))
        assert len(found) == requests
        wrong = [number for number, generated in found.items() if not near(generated, alone_each[number % DIFFERENT])]
        assert not wrong, [(question(n), found[n], alone_each[n % DIFFERENT]) for n in wrong[:2]]
        end = time.monotonic() + 10  # an answer is told before its turn is over
        while any(
            deployment.engine.num_running or deployment.engine.num_waiting
            for deployment in registry.deployments.values()
        ):
            assert time.monotonic() < end, "somebody is still worked for"
            time.sleep(0.01)
        assert sum(deployment.engine.stats.errors for deployment in registry.deployments.values()) == 0


def test_two_hundred_at_once_each_get_the_answer_they_get_alone() -> None:
    check_load(300, 200)


@pytest.mark.slow
def test_a_thousand_at_once_and_ten_thousand_in_all_each_get_the_answer_they_get_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for deadline in ("HEADERS", "SILENT", "TAKES_NOTHING"):  # the clients share one interpreter with the server
        monkeypatch.setattr(server, deadline, 120)
    check_load(10_000, 1000)


@pytest.mark.slow
def test_ten_thousand_wait_in_the_queue_and_none_is_lost() -> None:
    registry = ModelRegistry([loaded_model("gpt", decoder())], ServerLimits(max_queue=10_000))
    deployment, own = registry.get("gpt", "completions"), words()
    over: dict[Any, Any] = {}
    requests = [
        EngineRequest((own.bos_id, 10 + i % 20, 10 + i % 7), max_new_tokens=1 + i % 5, sampling=SamplingParams(0.0))
        for i in range(10_000)
    ]
    requests = deployment.engine.submit(requests, lambda scheduled, output: over.update({scheduled: output}))
    end = time.monotonic() + 300
    while len(over) < len(requests):
        assert time.monotonic() < end, f"{len(over)} after 300 s"
        time.sleep(0.05)
    registry.close()
    expected: dict[Any, list[int]] = {}
    for scheduled in requests:
        key = (scheduled.request.prompt, scheduled.request.max_new_tokens)
        expected[key] = expected.get(key) or alone(deployment.loaded.model, scheduled.request)
        assert scheduled.row.generated == expected[key]


def test_nothing_is_left_behind() -> None:
    registry = ModelRegistry(everything(), ServerLimits(max_queue=20_000))
    with serving(registry) as address:
        asyncio.run(all_of_them(address, range(120), 40))  # what is needed once is fetched now
        files, memory = settled()
        for _ in range(3):
            asyncio.run(all_of_them(address, range(120), 40))
        later_files, later_memory = settled()
    assert later_files <= files + 2, "files or sockets stay open"
    assert later_memory <= memory + 30 * 2**20, f"{(later_memory - memory) / 2**20:.0f} MiB more after 360 requests"


def settled() -> tuple[int, int]:
    """Open files, and bytes of memory, after all was let go."""
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


class Slow:
    """A model that takes its time over each word."""

    def __init__(self, seconds: float) -> None:
        self.model, self.seconds = decoder(), seconds
        self.plain, self.model.forward = self.model.forward, self.forward

    def forward(self, *values: Any, **named: Any) -> Any:
        time.sleep(self.seconds)
        return self.plain(*values, **named)


def listen(address: str, body: dict[str, Any]) -> socket.socket:
    """A request on its way, and a socket that can be closed at any time."""
    content = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(content)}\r\n"
    made = socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])))
    made.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + content)
    return made


@pytest.mark.parametrize("stream", [False, True], ids=["at once", "word by word"])
def test_a_client_that_leaves_stops_costing_within_a_second(stream: bool) -> None:
    registry = ModelRegistry([loaded_model("gpt", Slow(0.02).model)], ServerLimits(max_batch_size=2))
    engine = registry.deployments["gpt"].engine
    body = {"model": "gpt", "prompt": "sea", "max_tokens": 60, "temperature": 0, "stream": stream}
    with serving(registry) as address:
        clients = [listen(address, body) for _ in range(4)]  # two at the desk, two in the queue
        end = time.monotonic() + 20
        while engine.num_running < 2 or engine.num_waiting < 2:
            assert time.monotonic() < end
            time.sleep(0.01)
        for client in clients:
            client.close()
        began = time.monotonic()
        while engine.num_running or engine.num_waiting:
            assert time.monotonic() - began < 1.0, "they still cost"
            time.sleep(0.01)
        answer = httpx.post(f"{address}/v1/completions", json={**body, "max_tokens": 2, "stream": False}, timeout=30)
        assert answer.status_code == 200 and engine.stats.cancelled == 4


def test_shutdown_finishes_running_requests_within_the_grace_period(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "GRACE", 1.0)
    registry = ModelRegistry([loaded_model("gpt", Slow(0.05).model)])
    body = {"model": "gpt", "prompt": "sea", "temperature": 0}
    with serving(registry) as address:
        clients = [listen(address, {**body, "max_tokens": limit}) for limit in (5, 60)]
        while registry.deployments["gpt"].engine.num_running < 2:
            time.sleep(0.01)
        began = time.monotonic()
    assert time.monotonic() - began < 5
    for client, expected in zip(clients, (b"HTTP/1.1 200 OK", b"HTTP/1.1 503 Service Unavailable"), strict=True):
        client.settimeout(5)
        assert client.recv(1000).startswith(expected)
        client.close()


def test_shutdown_does_not_wait_for_idle_connections() -> None:
    with serving(ModelRegistry([loaded_model("gpt", decoder())])) as address:
        client = socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])))
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: local")  # the rest never comes
        assert httpx.get(f"{address}/healthz", timeout=30).status_code == 200
        began = time.monotonic()
    assert time.monotonic() - began < server.FLUSH_TIMEOUT + 2
    client.close()


def test_a_slow_client_times_out_and_others_are_served() -> None:
    registry = ModelRegistry([loaded_model("gpt", decoder())], ServerLimits(read_timeout=0.5))
    with serving(registry) as address:
        port = int(address.rpartition(":")[2])
        slow = socket.create_connection(("127.0.0.1", port))
        slow.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n")
        began = time.monotonic()
        slow.settimeout(0.2)
        answer = b""
        while b"\r\n\r\n" not in answer:
            assert time.monotonic() - began < 10
            try:
                slow.sendall(b"a")
                answer += slow.recv(1000)
            except TimeoutError:
                good = httpx.post(f"{address}/v1/completions", json={"model": "gpt", "prompt": "a"}, timeout=10)
                assert good.status_code == 200
        assert answer.startswith(b"HTTP/1.1 408") and time.monotonic() - began < 5
        slow.close()


@pytest.mark.slow
def test_crowds_of_slow_clients_are_gone_within_thirty_seconds_and_nobody_suffers() -> None:
    registry = ModelRegistry([loaded_model("gpt", decoder())])
    kinds = {
        "silent": (b"", b""),
        "slow head": (b"GET /healthz HTTP/1.1\r\nHost: local", b"x"),
        "slow body": (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999\r\n\r\n", b"a"),
        "idle": (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", b""),
    }
    with serving(registry) as address:
        quiet = asyncio.run(latencies(address, 5.0))
        busy, open_after = asyncio.run(beside_slow_ones(address, kinds, 100))
    assert open_after == dict.fromkeys(kinds, 0)
    assert busy < 2 * quiet + 0.05, f"p99 {busy:.3f} s beside slow clients, {quiet:.3f} s without"


async def latencies(address: str, seconds: float) -> float:
    """The 99th percentile of a short answer's time."""
    found = []
    async with httpx.AsyncClient(base_url=address, timeout=60, trust_env=False) as client:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            began = time.monotonic()
            answer = await client.post("/v1/completions", json={"model": "gpt", "prompt": "a", "max_tokens": 4})
            assert answer.status_code == 200
            found.append(time.monotonic() - began)
    return sorted(found)[int(0.99 * (len(found) - 1))]


async def beside_slow_ones(address: str, kinds: dict[str, Any], count: int) -> tuple[float, dict[str, int]]:
    port = int(address.rpartition(":")[2])
    still = dict.fromkeys(kinds, 0)

    async def one(kind: str) -> None:
        begin, more = kinds[kind]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        still[kind] += 1
        try:
            writer.write(begin)
            closed = asyncio.create_task(reader.read())
            while not (await asyncio.wait([closed], timeout=1.0))[0]:
                writer.write(more)
        except OSError:
            pass
        finally:
            still[kind] -= 1
            writer.close()

    crowd = [asyncio.create_task(one(kind)) for kind in kinds for _ in range(count)]
    ninety_nine = await latencies(address, 29.0)
    await asyncio.sleep(1.0)
    left = dict(still)
    for task in crowd:
        task.cancel()
    await asyncio.gather(*crowd, return_exceptions=True)
    return ninety_nine, left
