"""After any fault, every client gets a response or an error quickly, others are not affected, and memory is freed."""

import asyncio
import itertools
import json
import logging
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from softlook.serve.app import create_app
from tests.serve.fault_injection import (
    FAULTS,
    POISON,
    REQUEST_TYPES,
    FaultInjector,
    Response,
    is_close,
    num_held,
    response_seconds,
    send_request,
    tensor_bytes,
)

TEXTS = ("she sells", "sea shells", "ok")
STEPS = ("can_admit", "add", "step", "forward")
MAX_LEAKED_BYTES = 1 << 20
"""Cached masks may remain."""


@dataclass
class FaultCounts:
    """Outcomes of injected faults."""

    faults: int = 0
    errors: int = 0
    """Requests that got an error."""
    wrong: list[Any] = field(default_factory=list)
    """Responses that are neither correct nor an allowed error."""
    hanging: list[Any] = field(default_factory=list)


class FaultBench:
    """The server in this process, its responses without faults, and the outcomes with faults."""

    def __init__(self) -> None:
        self.injector = FaultInjector()
        self.app, self.counts = create_app(self.injector.registry), FaultCounts()
        self.loop = asyncio.new_event_loop()
        self.expected = {
            (request_type, text): self.loop.run_until_complete(send_request(self.app, request_type, text)).content
            for request_type in REQUEST_TYPES
            for text in TEXTS
        }
        assert not [key for key, value in self.expected.items() if value is None]
        self.tensor_bytes = tensor_bytes()

    def close(self) -> None:
        self.injector.close()
        self.loop.close()

    def inject_once(self, request_type: str, point: str, fault: str, countdown: int, other: str) -> None:
        """A fault that occurs once: requests of this model may fail, those of another model may not."""
        self.injector.arm(point, fault, countdown)
        case, requests = (request_type, point, fault, countdown), [(request_type, text) for text in TEXTS]
        responses = self._run([*requests, (other, TEXTS[2])], case)
        self.counts.faults += self.injector.num_injected
        self.injector.arm("", "", 1)
        self._check(requests, responses[: len(requests)], case, may_fail=True)
        self._check([(other, TEXTS[2])], responses[len(requests) :], case, may_fail=point == "sample_tokens")

    def inject_poison(self, request_type: str, fault: str, other: str) -> None:
        """A request on which the model always fails: only this one gets an error."""
        self.injector.arm(f"{REQUEST_TYPES[request_type][0]} forward", fault, 0)
        requests = [(request_type, TEXTS[0]), (request_type, POISON), (request_type, TEXTS[1]), (other, TEXTS[2])]
        responses = self._run(requests, (request_type, fault, "poison"))
        self.injector.arm("", "", 1)
        self._check(requests[1:2], responses[1:2], (request_type, fault, "poisoned"), may_fail=True)
        others = (request_type, fault, "next to a poisoned one")
        self._check(requests[:1] + requests[2:], responses[:1] + responses[2:], others, may_fail=False)
        self.counts.faults += 1

    def disconnect(self, request_type: str, disconnect_at: int, how: str, other: str) -> None:
        """A client that disconnects: the others get their responses."""
        requests = [(request_type, TEXTS[0]), (request_type, TEXTS[1]), (other, TEXTS[2])]
        case = (request_type, disconnect_at, how)
        responses = self._run(requests, case, disconnect_at=disconnect_at, how=how)
        self._check(requests[1:], responses[1:], case, may_fail=False)
        self.counts.faults += 1

    def _run(self, requests: Sequence[tuple[str, str]], case: Any, **disconnect: Any) -> list[Response]:
        async def run_all() -> list[Any]:
            first = send_request(self.app, *requests[0], **disconnect)
            others = (send_request(self.app, *request) for request in requests[1:])
            return await asyncio.gather(first, *others, return_exceptions=True)

        responses = self.loop.run_until_complete(run_all())
        self.counts.hanging += [case for one in responses if isinstance(one, TimeoutError)]
        if not self.wait_until_idle():
            self.counts.hanging.append((case, "still held"))
        return [Response(None, b"", 0.0) if isinstance(one, BaseException) else one for one in responses]

    def wait_until_idle(self) -> bool:
        end = time.monotonic() + response_seconds()
        while num_held(self.injector.registry):
            if time.monotonic() > end:
                return False
            time.sleep(0.001)
        return True

    def _check(
        self, requests: Sequence[tuple[str, str]], responses: Sequence[Response], case: Any, *, may_fail: bool
    ) -> None:
        for request, response in zip(requests, responses, strict=True):
            is_correct = response.content is not None and is_close(response.content, self.expected.get(request))
            is_error = may_fail and response.content is None and response.status is not None and response.is_error
            self.counts.errors += is_error and not is_correct
            if not (is_correct or is_error):
                self.counts.wrong.append((case, request, response))


@pytest.fixture(scope="module")
def bench() -> Iterator[FaultBench]:
    log = logging.getLogger("softlook.serve")
    level = log.level
    log.setLevel(logging.CRITICAL)
    bench = FaultBench()
    yield bench
    bench.close()
    log.setLevel(level)


def check_outcomes(bench: FaultBench, min_faults: int) -> None:
    """Nothing is wrong or hanging, the server works as before, and memory is freed."""
    counts, bench.counts = bench.counts, FaultCounts()
    sys.stderr.write(
        f"{counts.faults} faults, {counts.errors} errors, {len(counts.wrong)} wrong, {len(counts.hanging)} hanging\n"
    )
    assert not counts.wrong, counts.wrong[:3]
    assert not counts.hanging, counts.hanging[:3]
    assert counts.faults >= min_faults
    for (request_type, text), expected in bench.expected.items():
        response = bench.loop.run_until_complete(send_request(bench.app, request_type, text))
        assert is_close(response.content, expected)
    assert bench.wait_until_idle()
    leaked = tensor_bytes() - bench.tensor_bytes
    assert leaked <= MAX_LEAKED_BYTES, f"{leaked:,} bytes of tensors are still alive"
    engines = [deployment.engine for deployment in bench.injector.registry.deployments.values()]
    assert all(engine.is_alive and engine.error is None for engine in engines)


def other_type(request_type: str, rng: random.Random) -> str:
    """A request type of another model."""
    model = REQUEST_TYPES[request_type][0]
    return rng.choice([one for one in REQUEST_TYPES if REQUEST_TYPES[one][0] != model])


def test_only_the_request_that_the_model_fails_on_gets_an_error(bench: FaultBench) -> None:
    rng = random.Random(0)
    for request_type, fault in itertools.product(REQUEST_TYPES, ("error", "nan", "memory")):
        if REQUEST_TYPES[request_type][0] != "fake" or fault == "error":  # the fake table fails on a number
            bench.inject_poison(request_type, fault, other_type(request_type, rng))
    check_outcomes(bench, 32)


def test_a_fault_at_any_step_leads_to_a_response_or_an_error(bench: FaultBench) -> None:
    rng = random.Random(1)
    for index, case in enumerate(itertools.product(REQUEST_TYPES, STEPS, [*FAULTS, "nan"])):
        if index % 3 == 0:  # the slow test tries all of them, many times
            inject_case(bench, rng, *case)
    check_outcomes(bench, 20)


@pytest.mark.parametrize("how", ["waits", "leaves", "breaks"])
def test_a_client_that_disconnects_at_any_point_affects_nobody(bench: FaultBench, how: str) -> None:
    rng = random.Random(2)
    for index, request_type in enumerate(REQUEST_TYPES):
        bench.disconnect(request_type, index % 5, how, other_type(request_type, rng))
    check_outcomes(bench, len(REQUEST_TYPES))


@pytest.mark.parametrize("request_type", ["classification", "embedding"])
def test_non_finite_outputs_are_an_error(bench: FaultBench, request_type: str) -> None:
    bench.injector.arm(f"{REQUEST_TYPES[request_type][0]} forward", "nan", 1)
    response = bench.loop.run_until_complete(send_request(bench.app, request_type, TEXTS[0]))
    error = json.loads(response.body)["error"]
    assert response.status == 500 and error["type"] == "server_error" and "non-finite numbers" in error["message"]


def test_a_stream_whose_first_send_fails_is_not_generated(bench: FaultBench, monkeypatch: pytest.MonkeyPatch) -> None:
    model, route, body = REQUEST_TYPES["stream"]
    monkeypatch.setitem(REQUEST_TYPES, "stream", (model, route, lambda text: {**body(text), "max_tokens": 50}))
    stats = bench.injector.registry.deployments[model].engine.stats
    finished, cancelled = stats.finished, stats.cancelled
    bench.loop.run_until_complete(send_request(bench.app, "stream", TEXTS[0], disconnect_at=0, how="breaks"))
    assert bench.wait_until_idle()
    assert (stats.finished, stats.cancelled) == (finished, cancelled + 1)


def inject_case(bench: FaultBench, rng: random.Random, request_type: str, step: str, fault: str) -> None:
    if fault == "nan" and (step != "forward" or request_type == "explained table"):  # NaN: no attention on the column
        return
    model = REQUEST_TYPES[request_type][0]
    countdown = rng.randint(1, 3 if step == "add" else 8)
    bench.inject_once(request_type, f"{model} {step}", fault, countdown, other_type(request_type, rng))


@pytest.mark.slow
def test_a_thousand_faults_all_lead_to_a_response_or_an_error(bench: FaultBench) -> None:
    rng, cases = random.Random(3), list(itertools.product(REQUEST_TYPES, STEPS, [*FAULTS, "nan"]))
    while bench.counts.faults < 1200:
        roll, request_type = rng.random(), rng.choice(list(REQUEST_TYPES))
        other = other_type(request_type, rng)
        if roll < 0.5:
            inject_case(bench, rng, *rng.choice(cases))
        elif roll < 0.6:
            fault = rng.choice(["error", "memory"])
            bench.inject_once(request_type, "sample_tokens", fault, rng.randint(1, 6), other)
        elif roll < 0.75:
            is_table = REQUEST_TYPES[request_type][0] == "fake"
            bench.inject_poison(request_type, "error" if is_table else rng.choice(["error", "nan"]), "classification")
        else:
            bench.disconnect(request_type, rng.randint(0, 9), rng.choice(["waits", "leaves", "breaks"]), other)
    check_outcomes(bench, 1200)
