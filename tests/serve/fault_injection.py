"""Fault injection: errors, NaN and memory exhaustion at any step, and clients that disconnect at any point."""

import asyncio
import gc
import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from softlook.base.tensors import PLAIN_TYPES
from softlook.serve.engine import sampler
from softlook.serve.engine.continuous_batcher import ContinuousBatcher
from softlook.serve.loaded_model import LoadedTable
from softlook.serve.registry import ModelRegistry
from tests.serve.small_tables import FakeTable
from tests.serve.tiny_models import everything

RESPONSE_SECONDS = 1.0
"""Within which every client must get a response on an idle machine."""
POISON = "~"
"""Requests with this text fail at every forward pass, if the fault concerns one request."""
FAULTS: dict[str, Callable[[], BaseException]] = {
    "error": lambda: RuntimeError("injected"),
    "memory": lambda: torch.OutOfMemoryError("injected"),
    "exit": lambda: SystemExit("injected"),
}
SAMPLING: dict[str, Any] = {"max_tokens": 6, "temperature": 0.8, "seed": 3}
REQUEST_TYPES: dict[str, tuple[str, str, Callable[[str], dict[str, Any]]]] = {
    "completion": ("gpt", "/v1/completions", lambda text: {"prompt": text, **SAMPLING}),
    "completions": ("gpt", "/v1/completions", lambda text: {"prompt": [text, "sea"], "n": 2, **SAMPLING}),
    "stream": ("gpt", "/v1/completions", lambda text: {"prompt": text, "stream": True, **SAMPLING}),
    "chat": (
        "chat",
        "/v1/chat/completions",
        lambda text: {"messages": [{"role": "user", "content": text}], **SAMPLING},
    ),
    "chat stream": (
        "chat",
        "/v1/chat/completions",
        lambda text: {"messages": [{"role": "user", "content": text}], "stream": True, **SAMPLING},
    ),
    "translation": ("translate", "/v1/translate", lambda text: {"text": text, "num_beams": 1, "max_tokens": 6}),
    "beam search": (
        "translate",
        "/v1/translate",
        lambda text: {"text": text, "num_beams": 3, "n_best": 2, "max_tokens": 6},
    ),
    "alignment": ("translate", "/v1/translate", lambda text: {"text": text, "alignments": True, "max_tokens": 6}),
    "classification": ("classify", "/v1/classify", lambda text: {"text": text}),
    "embedding": ("embed", "/v1/embeddings", lambda text: {"input": [text, "sea shells"]}),
    "table": ("fake", "/v1/tables/predict", lambda text: {"rows": [{"x": 13 if text == POISON else len(text)}]}),
    "explained table": (
        "fake",
        "/v1/tables/predict",
        lambda text: {"rows": [{"x": 13 if text == POISON else len(text)}], "explain": True},
    ),
}
"""The model, the route, and the body of a request for a text."""


def response_seconds() -> float:
    """The response deadline, scaled by the load of the machine and by SOFTLOOK_TEST_SLOWNESS."""
    load = os.getloadavg()[0] / (os.cpu_count() or 1) if hasattr(os, "getloadavg") else 1.0
    return RESPONSE_SECONDS * 2 * max(load, 1.0) * float(os.environ.get("SOFTLOOK_TEST_SLOWNESS", "1"))


@dataclass
class Response:
    """What a client received, and after how many seconds."""

    status: int | None
    body: bytes
    seconds: float

    @property
    def content(self) -> Any:
        """The content without ids and times; None for an error."""
        if self.status != 200:
            return None
        text = self.body.decode()
        if text.startswith("data: "):
            events = [json.loads(line[6:]) for line in text.split("\n\n") if line and line != "data: [DONE]"]
            return None if any("error" in event for event in events) else "".join(map(_event_text, events))
        return _without_ids(json.loads(text))

    @property
    def is_error(self) -> bool:
        """Whether it is a well-formed error with a message."""
        text = self.body.decode()
        if text.startswith("data: "):
            last = json.loads(text.split("\n\n")[-3][6:])
            return text.endswith("data: [DONE]\n\n") and bool(last.get("error", {}).get("message"))
        return self.status in (400, 500, 503) and bool(json.loads(text)["error"]["message"])


class FaultInjector:
    """A registry with an injection point before every step. One fault at a time: once, or for poisoned requests."""

    def __init__(self) -> None:
        self.registry = ModelRegistry([*everything(), LoadedTable("fake", FakeTable())])
        self.point, self.fault, self.countdown, self.num_injected = "", "", 0, 0
        self.poison_id = self.registry.get("gpt", "completions").loaded.tokenizer.encode([POISON])[0][-1]
        for name, deployment in self.registry.deployments.items():
            scheduler: Any = deployment.engine.scheduler
            for step in ("can_admit", "add", "step"):
                self._wrap(scheduler, step, f"{name} {step}")
            model: Any = getattr(deployment.loaded, "model", None) or getattr(deployment.loaded, "table", None)
            for step in ("forward", "encode", "decode", "predict", "explain"):
                if hasattr(model, step) and not (name == "fake" and step in ("encode", "decode")):
                    self._wrap(model, step, f"{name} forward")
        self.sample_tokens = sampler.sample_tokens
        self._wrap(sampler, "sample_tokens", "sample_tokens")

    def close(self) -> None:
        sampler.sample_tokens = self.sample_tokens
        self.registry.close()

    def arm(self, point: str, fault: str, countdown: int) -> None:
        """Inject at the `countdown`-th time a point is passed; 0 injects for every poisoned request."""
        self.point, self.fault, self.countdown, self.num_injected = point, fault, countdown, 0

    def _wrap(self, owner: Any, name: str, point: str) -> None:
        original = getattr(owner, name)

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            injects = self.point == point and self._injects(args)
            if injects and self.fault != "nan":
                raise FAULTS[self.fault]()
            output = original(*args, **kwargs)
            return self._with_nan(output, args) if injects else output

        setattr(owner, name, wrapper)

    def _injects(self, args: Any) -> bool:
        if self.countdown == 0:
            injects = bool(len(args)) and bool(self._poisoned_rows(args[0]).any())
        else:
            self.countdown -= 1
            injects = self.countdown == 0
            self.point = "" if injects else self.point
        self.num_injected += injects
        return injects

    def _poisoned_rows(self, ids: Any) -> torch.Tensor:
        if not isinstance(ids, torch.Tensor) or ids.is_floating_point():
            return torch.zeros(0, dtype=torch.bool)
        return (ids == self.poison_id).any(1)

    def _with_nan(self, output: Any, args: Any) -> Any:
        """NaN instead of the output: of the poisoned rows, or of all."""
        if not isinstance(output, torch.Tensor):
            return output
        rows = self._poisoned_rows(args[0]) if self.countdown == 0 and self.point else torch.zeros(0)
        shape = (len(rows), *[1] * (output.ndim - 1))
        return output.masked_fill(rows.view(shape), torch.nan) if len(rows) == len(output) else output * torch.nan


async def send_request(
    app: Any, request_type: str, text: str, *, disconnect_at: int | None = None, how: str = ""
) -> Response:
    """Send one request. A client may disconnect before the message of this index, or its connection breaks then."""
    model, route, body = REQUEST_TYPES[request_type]
    content, sent, gone = json.dumps({"model": model, **body(text)}).encode(), list[Any](), asyncio.Event()
    pending = [{"type": "http.request", "body": content, "more_body": False}]
    start = time.monotonic()

    async def receive() -> Any:
        if pending:
            return pending.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if disconnect_at is not None and len(sent) >= disconnect_at:
            gone.set()
            if how == "breaks":
                raise OSError("the connection is broken")
        sent.append(message)
        await asyncio.sleep(0)

    if disconnect_at is not None and how == "waits":
        asyncio.get_running_loop().call_later(0.001 * disconnect_at, gone.set)
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": route, "headers": headers, "query_string": b"", "root_path": ""}
    scope |= {"scheme": "http", "http_version": "1.1", "client": ("127.0.0.1", 1), "server": ("localhost", 80)}
    try:
        await asyncio.wait_for(app(scope, receive, send), response_seconds())
    except TimeoutError:
        raise
    except Exception:  # starlette raises what it has answered with status 500, for the log
        pass
    status = next((one["status"] for one in sent if one["type"] == "http.response.start"), None)
    return Response(status, b"".join(one.get("body", b"") for one in sent), time.monotonic() - start)


def num_held(registry: ModelRegistry) -> int:
    """Requests in queues and schedulers, and rows in KV caches."""
    count = 0
    for deployment in registry.deployments.values():
        scheduler = deployment.engine.scheduler
        count += deployment.engine.num_waiting + deployment.engine.num_running + len(scheduler.requests)
        if isinstance(scheduler, ContinuousBatcher):
            count += sum(batch.cache.rows for batch in scheduler.batches)
    return count


def tensor_bytes() -> int:
    """Bytes of all live plain tensors. Other tests may keep some without a storage: packed weights, fake tensors."""
    gc.collect()
    tensors = (one for one in gc.get_objects() if type(one) in PLAIN_TYPES)
    storages = (one.untyped_storage() for one in tensors if one.layout == torch.strided)
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def _event_text(event: Any) -> str:
    choice = event["choices"][0]
    return choice["text"] if "text" in choice else choice["delta"].get("content", "")


def _without_ids(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _without_ids(value) for key, value in content.items() if key not in ("id", "created")}
    return [_without_ids(one) for one in content] if isinstance(content, list) else content


def is_close(one: Any, other: Any) -> bool:
    """Equal texts and ids; floats up to rounding, whose last bits depend on the batch (weights have four decimals)."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_close(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_close, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-5, abs_tol=1.1e-4)
    return one == other
