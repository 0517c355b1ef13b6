"""A run tells its sinks what happens: each in a thread of its own, so that none can hold it up or end it."""

import json
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import Full, Queue
from threading import Thread
from typing import Any

from softlook.recipes.sinks.sink import About, Open, Sink
from softlook.recipes.told import flat
from softlook.train.events import Evaluated, Event, Sampled, Started, Trained
from softlook.weights.schema import read_json

log = logging.getLogger("softlook.recipes")
FOLDER = "sinks"
MOST_BEHIND = 10_000
"""Events that may wait for a slow sink, before it is left out."""
PATIENCE = 60.0
"""Seconds that a sink gets at the end to write the last of it."""
NUMBERS = ("loss", "lr", "gradient", "tokens_per_second")
Told = Started | Trained | Evaluated | Sampled


@dataclass(frozen=True)
class End:
    """Nothing comes after it."""

    step: int
    scores: Mapping[str, Any]
    complete: bool


@dataclass
class Ledger:
    """What one sink calls the run, and up to which step it was told of what: so nothing is told twice."""

    path: Path
    id: str = ""
    told: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def read(path: Path) -> "Ledger":
        return Ledger(path, **read_json(path)) if path.is_file() else Ledger(path)

    def is_new(self, kind: str, step: int) -> bool:
        return step > self.told.get(kind, -1)

    def keep(self, kind: str, step: int) -> None:
        self.told[kind] = max(step, self.told.get(kind, -1))
        self.write()

    def write(self) -> None:
        """Whole or not at all, whenever the process is killed."""
        self.path.parent.mkdir(exist_ok=True)
        partial = self.path.with_suffix(".partial")
        partial.write_text(json.dumps({"id": self.id, "told": self.told}), encoding="utf-8")
        partial.replace(self.path)


class Telling:
    """Passes events on to one sink. Where that fails it is said, once, and the run goes on without it."""

    def __init__(self, name: str, open: Open, about: About) -> None:
        self.name, self.open, self.about, self.is_over = name, open, about, False
        self.waiting: Queue[Told | End] = Queue(MOST_BEHIND)
        self.worker = Thread(target=self._work, name=f"softlook {name}", daemon=True)
        self.worker.start()

    def __call__(self, event: Event) -> None:
        if isinstance(event, Told) and not self.is_over:
            self._put(event)

    def end(self, step: int, scores: Mapping[str, Any], *, complete: bool) -> None:
        """Say what came of the run, and wait for a while until it was written."""
        if not self.is_over:
            self._put(End(step, scores, complete))
            self.worker.join(PATIENCE)
        if self.worker.is_alive():
            self._leave(f"it was not done {PATIENCE:g} s after the end")

    def _put(self, event: Told | End) -> None:
        try:
            self.waiting.put_nowait(event)
        except Full:
            self._leave(f"it is {MOST_BEHIND:,} events behind")

    def _leave(self, why: str) -> None:
        if not self.is_over:
            self.is_over = True
            log.warning(f"{self.name} hears no more of this run: {why}. All of it is in {self.about.folder}.")

    def _work(self) -> None:
        try:
            self._tell_all(iter(self.waiting.get, None))
        except BaseException as fault:  # whatever it is, the run is worth more than its echo
            self._leave(f"{type(fault).__name__}: {str(fault).strip().splitlines()[0] if str(fault) else 'no reason'}")

    def _tell_all(self, events: Iterator[Told | End | None]) -> None:
        first = next(events)
        if not isinstance(first, Started):
            return
        ledger = Ledger.read(self.about.folder / FOLDER / f"{self.name}.json")
        sink = self.open(replace(self.about, step=first.step, known=ledger.id))
        if sink.said:
            log.info(sink.said)
        ledger.id = sink.id
        ledger.write()
        for event in events:
            if self.is_over:
                return
            if isinstance(event, End):
                close(sink, event, ledger)
                return
            tell(sink, event, ledger)


def tell(sink: Sink, event: Told | None, ledger: Ledger) -> None:
    """Pass one event on, unless the sink knows of it from before a crash."""
    if event is None or isinstance(event, Started):
        return
    kind = {Trained: "train", Evaluated: "held_out", Sampled: "samples"}[type(event)]
    is_forgotten = sink.forgets and not isinstance(event, Sampled)
    if not is_forgotten and not ledger.is_new(kind, event.step):
        return
    if isinstance(event, Trained):
        sink.numbers(event.step, {f"{kind}/{name}": float(getattr(event, name)) for name in NUMBERS})
    elif isinstance(event, Evaluated):
        sink.numbers(event.step, numbers_of(kind, event.scores))
    else:
        sink.samples(event.step, event.samples)
    ledger.keep(kind, event.step)


def close(sink: Sink, end: End, ledger: Ledger) -> None:
    """The scores of a finished run go along, unless they did so before."""
    is_new = sink.forgets or ledger.is_new("final", end.step)
    sink.close(end.step, numbers_of("final", end.scores) if is_new else {}, complete=end.complete)
    if end.scores:
        ledger.keep("final", end.step)


def numbers_of(kind: str, scores: Mapping[str, Any]) -> dict[str, float]:
    """The numbers among nested scores, by names that every sink takes.

    >>> numbers_of("final", {"loss": 1.5, "test": {"bleu": 40, "signature": "nrefs:1", "f1 of 'a'": 0.5}})
    {'final/loss': 1.5, 'final/test.bleu': 40.0, 'final/test.f1 of _a_': 0.5}
    """
    return {
        f"{kind}/{re.sub(r'[^A-Za-z0-9_. /-]', '_', name)}": float(value)
        for name, value in flat(scores).items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
