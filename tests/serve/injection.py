"""Faults on purpose: at any step of any request, and clients that leave at any point."""

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from softlook.serve import desks
from softlook.serve.continuing import ContinuingDesk
from softlook.serve.hall import Hall
from softlook.serve.tables import ServedTable
from tests.serve.halls import everything
from tests.serve.small_tables import Pretended

SECONDS = 20.0
"""After which a client is taken to hang. One second where the machine has nothing else to do."""
POISON = "~"
"""Requests with this in them fail whenever the model sees it, where a fault is about one request."""
FAULTS: dict[str, Callable[[], BaseException]] = {
    "error": lambda: RuntimeError("injected"),
    "memory": lambda: torch.OutOfMemoryError("injected"),
    "exit": lambda: SystemExit("injected"),
}
PLAIN: dict[str, Any] = {"max_tokens": 6, "temperature": 0.8, "seed": 3}
KINDS: dict[str, tuple[str, str, Callable[[str], dict[str, Any]]]] = {
    "completion": ("gpt", "/v1/completions", lambda text: {"prompt": text, **PLAIN}),
    "completions": ("gpt", "/v1/completions", lambda text: {"prompt": [text, "sea"], "n": 2, **PLAIN}),
    "stream": ("gpt", "/v1/completions", lambda text: {"prompt": text, "stream": True, **PLAIN}),
    "chat": (
        "chat",
        "/v1/chat/completions",
        lambda text: {"messages": [{"role": "user", "content": text}], **PLAIN},
    ),
    "chat stream": (
        "chat",
        "/v1/chat/completions",
        lambda text: {"messages": [{"role": "user", "content": text}], "stream": True, **PLAIN},
    ),
    "translation": ("translate", "/v1/translate", lambda text: {"text": text, "beams": 1, "max_tokens": 6}),
    "search": ("translate", "/v1/translate", lambda text: {"text": text, "beams": 3, "best": 2, "max_tokens": 6}),
    "alignment": ("translate", "/v1/translate", lambda text: {"text": text, "alignments": True, "max_tokens": 6}),
    "class": ("classify", "/v1/classify", lambda text: {"text": text}),
    "embedding": ("embed", "/v1/embeddings", lambda text: {"input": [text, "sea shells"]}),
    "rows": ("pretended", "/v1/tables/predict", lambda text: {"rows": [{"x": 13 if text == POISON else len(text)}]}),
    "explained": (
        "pretended",
        "/v1/tables/predict",
        lambda text: {"rows": [{"x": 13 if text == POISON else len(text)}], "explain": True},
    ),
}
"""The model, the page, and the body of a request about a text."""


@dataclass
class Answer:
    """What a client got, and when."""

    status: int | None
    body: bytes
    seconds: float

    @property
    def gist(self) -> Any:
        """What it says, without when it was said; None where it is an error."""
        if self.status != 200:
            return None
        text = self.body.decode()
        if text.startswith("data: "):
            events = [json.loads(line[6:]) for line in text.split("\n\n") if line and line != "data: [DONE]"]
            return None if any("error" in one for one in events) else "".join(map(_said, events))
        return _without(json.loads(text))

    @property
    def is_error(self) -> bool:
        """Does it say what went wrong, in the shape of an error?"""
        text = self.body.decode()
        if text.startswith("data: "):
            last = json.loads(text.split("\n\n")[-3][6:])
            return text.endswith("data: [DONE]\n\n") and bool(last.get("error", {}).get("message"))
        return self.status in (400, 500, 503) and bool(json.loads(text)["error"]["message"])


class Injection:
    """A hall with a place for a fault before every step. One fault at a time, once or for whoever is poisoned."""

    def __init__(self) -> None:
        self.hall = Hall([*everything(), ServedTable("pretended", Pretended())])
        self.place, self.fault, self.passes, self.struck = "", "", 0, 0
        poison = self.hall.seat("gpt", "completions").served.tokenizer.encode([POISON])[0]
        self.poison = poison[-1]
        for name, seat in self.hall.seats.items():
            desk: Any = seat.engine.desk
            for step in ("has_room", "join", "turn"):
                self._watch(desk, step, f"{name} {step}")
            model: Any = getattr(seat.served, "model", None) or getattr(seat.served, "table", None)
            for step in ("forward", "encode", "decode", "answer", "looks"):
                if hasattr(model, step):
                    self._watch(model, step, f"{name} step")
        self.choose = desks.choose
        self._watch(desks, "choose", "choose")

    def close(self) -> None:
        desks.choose = self.choose
        self.hall.close()

    def arm(self, place: str, fault: str, passes: int) -> None:
        """Strike when this place is passed for the so-maniest time; 0 means for every poisoned request."""
        self.place, self.fault, self.passes, self.struck = place, fault, passes, 0

    def _watch(self, owner: Any, name: str, place: str) -> None:
        plain = getattr(owner, name)

        def method(*values: Any, **named: Any) -> Any:
            strikes = self.place == place and self._strikes(values)
            if strikes and self.fault != "nan":
                raise FAULTS[self.fault]()
            found = plain(*values, **named)
            return self._spoiled(found, values) if strikes else found

        setattr(owner, name, method)

    def _strikes(self, values: Any) -> bool:
        if self.passes == 0:
            strikes = bool(len(values)) and bool(self._poisoned(values[0]).any())
        else:
            self.passes -= 1
            strikes = self.passes == 0
            self.place = "" if strikes else self.place
        self.struck += strikes
        return strikes

    def _poisoned(self, ids: Any) -> Any:
        """(N,) which rows are."""
        if not isinstance(ids, torch.Tensor) or ids.is_floating_point():
            return torch.zeros(0, dtype=torch.bool)
        return (ids == self.poison).any(1)

    def _spoiled(self, found: Any, values: Any) -> Any:
        """NaN in place of what was computed: for the poisoned, or for all."""
        if not isinstance(found, torch.Tensor):
            return found
        rows = self._poisoned(values[0]) if self.passes == 0 and self.place else torch.zeros(0)
        shape = (len(rows), *[1] * (found.ndim - 1))
        return found.masked_fill(rows.view(shape), torch.nan) if len(rows) == len(found) else found * torch.nan


async def ask(app: Any, kind: str, text: str, *, leaves: int | None = None, how: str = "") -> Answer:
    """One request. A client that leaves does so before the so-maniest message to it, or its connection breaks then."""
    model, page, body = KINDS[kind]
    content, sent, gone = json.dumps({"model": model, **body(text)}).encode(), list[Any](), asyncio.Event()
    asked = [{"type": "http.request", "body": content, "more_body": False}]
    began = time.monotonic()

    async def receive() -> Any:
        if asked:
            return asked.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if leaves is not None and len(sent) >= leaves:
            gone.set()
            if how == "breaks":
                raise OSError("the connection is broken")
        sent.append(message)
        await asyncio.sleep(0)

    if leaves is not None and how == "waits":
        asyncio.get_running_loop().call_later(0.001 * leaves, gone.set)
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": page, "headers": headers, "query_string": b"", "root_path": ""}
    scope |= {"scheme": "http", "http_version": "1.1", "client": ("127.0.0.1", 1), "server": ("localhost", 80)}
    try:
        await asyncio.wait_for(app(scope, receive, send), SECONDS)
    except TimeoutError:
        raise
    except Exception:  # a server raises what it has answered with 500 once more, for its log
        pass
    status = next((one["status"] for one in sent if one["type"] == "http.response.start"), None)
    return Answer(status, b"".join(one.get("body", b"") for one in sent), time.monotonic() - began)


def held(hall: Hall) -> int:
    """What requests still take up: places in queues and at desks, and in KV caches."""
    found = 0
    for seat in hall.seats.values():
        desk = seat.engine.desk
        found += seat.engine.waiting + seat.engine.working + len(desk.tickets)
        if isinstance(desk, ContinuingDesk):
            found += sum(batch.slots.rows for batch in desk.batches)
    return found


def _said(event: Any) -> str:
    choice = event["choices"][0]
    return choice["text"] if "text" in choice else choice["delta"].get("content", "")


def _without(found: Any) -> Any:
    """Without ids and times."""
    if isinstance(found, dict):
        return {key: _without(value) for key, value in found.items() if key not in ("id", "created")}
    return [_without(one) for one in found] if isinstance(found, list) else found


def near(one: Any, other: Any) -> bool:
    """Texts and ids are the same, and numbers as far as they are sure: their last bits depend on the batch."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(near(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(near, one, other))
    return abs(one - other) < 1e-3 if isinstance(one, float) and isinstance(other, float) else one == other
