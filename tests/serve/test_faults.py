"""Whatever fails, and whoever leaves: each client has an answer or an error soon, and nobody else notices."""

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

from softlook.serve.app import make_app
from tests.serve.injection import FAULTS, KINDS, POISON, SECONDS, Answer, Injection, ask, held, near

TEXTS = ("she sells", "sea shells", "ok")
STEPS = ("has_room", "join", "turn", "step")


@dataclass
class Counts:
    """What became of injected faults."""

    faults: int = 0
    errors: int = 0
    """Requests that were answered with an error."""
    wrong: list[Any] = field(default_factory=list)
    """Answers that are neither right nor an error, or an error to somebody who is none of it."""
    hanging: list[Any] = field(default_factory=list)


class Bench:
    """The server in this process, what it answers without faults, and what it did with them."""

    def __init__(self) -> None:
        self.injection = Injection()
        self.app, self.counts = make_app(self.injection.hall), Counts()
        self.loop = asyncio.new_event_loop()
        self.wanted = {
            (kind, text): self.loop.run_until_complete(ask(self.app, kind, text)).gist
            for kind in KINDS
            for text in TEXTS
        }
        assert not [one for one, value in self.wanted.items() if value is None]

    def close(self) -> None:
        self.injection.close()
        self.loop.close()

    def try_fault(self, kind: str, place: str, fault: str, passes: int, beside: str) -> None:
        """A fault that strikes once: each has its answer or an error; those of another model their answer."""
        self.injection.arm(place, fault, passes)
        what, asks = (kind, place, fault, passes), [(kind, text) for text in TEXTS]
        found = self._run([*asks, (beside, TEXTS[2])], what)
        self.counts.faults += self.injection.struck
        self.injection.arm("", "", 1)
        self._judge(asks, found[: len(asks)], what, may_fail=True)
        self._judge([(beside, TEXTS[2])], found[len(asks) :], what, may_fail=place == "choose")

    def try_poison(self, kind: str, fault: str, beside: str) -> None:
        """A request on which the model always fails: it has an error, and everybody else their answer."""
        self.injection.arm(f"{KINDS[kind][0]} step", fault, 0)
        asks = [(kind, TEXTS[0]), (kind, POISON), (kind, TEXTS[1]), (beside, TEXTS[2])]
        found = self._run(asks, (kind, fault, "poison"))
        self.injection.arm("", "", 1)
        self._judge(asks[1:2], found[1:2], (kind, fault, "poisoned"), may_fail=True)
        self._judge(asks[:1] + asks[2:], found[:1] + found[2:], (kind, fault, "beside poison"), may_fail=False)
        self.counts.faults += 1

    def try_leaving(self, kind: str, leaves: int, how: str, beside: str) -> None:
        """A client that leaves: the others have their answers."""
        asks = [(kind, TEXTS[0]), (kind, TEXTS[1]), (beside, TEXTS[2])]
        found = self._run(asks, (kind, leaves, how), leaves=leaves, how=how)
        self._judge(asks[1:], found[1:], (kind, leaves, how), may_fail=False)
        self.counts.faults += 1

    def _run(self, asks: Sequence[tuple[str, str]], what: Any, **leaving: Any) -> list[Answer]:
        async def together() -> list[Any]:
            first = ask(self.app, *asks[0], **leaving)
            return await asyncio.gather(first, *(ask(self.app, *one) for one in asks[1:]), return_exceptions=True)

        found = self.loop.run_until_complete(together())
        self.counts.hanging += [what for one in found if isinstance(one, TimeoutError)]
        end = time.monotonic() + SECONDS
        while held(self.injection.hall):
            if time.monotonic() > end:
                self.counts.hanging.append((what, "still held"))
                break
            time.sleep(0.001)
        return [Answer(None, b"", 0.0) if isinstance(one, BaseException) else one for one in found]

    def _judge(self, asks: Sequence[tuple[str, str]], found: Sequence[Answer], what: Any, *, may_fail: bool) -> None:
        for one, answer in zip(asks, found, strict=True):
            right = answer.gist is not None and near(answer.gist, self.wanted.get(one))
            error = may_fail and answer.gist is None and answer.status is not None and answer.is_error
            self.counts.errors += error and not right
            if not (right or error):
                self.counts.wrong.append((what, one, answer))


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    log = logging.getLogger("softlook.serve")
    level = log.level
    log.setLevel(logging.CRITICAL)  # thousands of tracebacks say nothing new
    made = Bench()
    yield made
    made.close()
    log.setLevel(level)


def passed(bench: Bench, faults: int) -> None:
    """Nothing wrong, nobody hanging, everything as it was."""
    counts, bench.counts = bench.counts, Counts()
    sys.stderr.write(
        f"{counts.faults} faults, {counts.errors} errors, {len(counts.wrong)} wrong, {len(counts.hanging)} hanging\n"
    )
    assert not counts.wrong, counts.wrong[:3]
    assert not counts.hanging, counts.hanging[:3]
    assert counts.faults >= faults
    for (kind, text), wanted in bench.wanted.items():
        assert near(bench.loop.run_until_complete(ask(bench.app, kind, text)).gist, wanted)
    assert held(bench.injection.hall) == 0
    assert all(seat.engine.alive and seat.engine.fault is None for seat in bench.injection.hall.seats.values())


def others(kind: str, dice: random.Random) -> str:
    return dice.choice([one for one in KINDS if KINDS[one][0] != KINDS[kind][0]])


def test_only_a_request_that_the_model_fails_on_is_failed(bench: Bench) -> None:
    dice = random.Random(0)
    for kind, fault in itertools.product(KINDS, ("error", "nan", "memory")):
        if KINDS[kind][0] != "pretended" or fault == "error":  # a table fails on a number
            bench.try_poison(kind, fault, others(kind, dice))
    passed(bench, 32)


def test_a_fault_at_any_step_is_answered_or_told(bench: Bench) -> None:
    dice = random.Random(1)
    for number, (kind, step, fault) in enumerate(itertools.product(KINDS, STEPS, [*FAULTS, "nan"])):
        if number % 3 == 0:  # the slow one tries all of them, many times
            one(bench, dice, kind, step, fault)
    passed(bench, 20)


@pytest.mark.parametrize("how", ["waits", "leaves", "breaks"])
def test_a_client_that_leaves_at_any_point_costs_nobody_anything(bench: Bench, how: str) -> None:
    dice = random.Random(2)
    for number, kind in enumerate(KINDS):
        bench.try_leaving(kind, number % 5, how, others(kind, dice))
    passed(bench, len(KINDS))


@pytest.mark.parametrize("kind", ["class", "embedding"])
def test_numbers_that_are_not_finite_are_an_error_and_no_answer(bench: Bench, kind: str) -> None:
    bench.injection.arm(f"{KINDS[kind][0]} step", "nan", 1)
    found = bench.loop.run_until_complete(ask(bench.app, kind, TEXTS[0]))
    error = json.loads(found.body)["error"]
    assert found.status == 500 and error["type"] == "server_error" and "non-finite numbers" in error["message"]


def test_a_stream_whose_first_send_fails_is_not_generated(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    model, page, body = KINDS["stream"]
    monkeypatch.setitem(KINDS, "stream", (model, page, lambda text: {**body(text), "max_tokens": 50}))
    counts = bench.injection.hall.seats[model].engine.counts
    finished, cancelled = counts.finished, counts.cancelled
    bench.loop.run_until_complete(ask(bench.app, "stream", TEXTS[0], leaves=0, how="breaks"))
    end = time.monotonic() + SECONDS
    while held(bench.injection.hall):
        assert time.monotonic() < end
        time.sleep(0.001)
    assert (counts.finished, counts.cancelled) == (finished, cancelled + 1)


def one(bench: Bench, dice: random.Random, kind: str, step: str, fault: str) -> None:
    if fault == "nan" and (step != "step" or kind == "explained"):  # NaN: a column that is never looked at
        return
    passes = dice.randint(1, 3 if step == "join" else 8)
    bench.try_fault(kind, f"{KINDS[kind][0]} {step}", fault, passes, others(kind, dice))


@pytest.mark.slow
def test_a_thousand_faults_are_all_answered_or_told(bench: Bench) -> None:
    dice, everything = random.Random(3), list(itertools.product(KINDS, STEPS, [*FAULTS, "nan"]))
    while bench.counts.faults < 1200:
        roll, kind = dice.random(), dice.choice(list(KINDS))
        if roll < 0.5:
            one(bench, dice, *dice.choice(everything))
        elif roll < 0.6:
            bench.try_fault(kind, "choose", dice.choice(["error", "memory"]), dice.randint(1, 6), others(kind, dice))
        elif roll < 0.75:
            bench.try_poison(kind, "error" if KINDS[kind][0] == "pretended" else dice.choice(["error", "nan"]), "class")
        else:
            how = dice.choice(["waits", "leaves", "breaks"])
            bench.try_leaving(kind, dice.randint(0, 9), how, others(kind, dice))
    passed(bench, 1200)
