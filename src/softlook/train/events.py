"""What happens during a run, as plain values, and who listens."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from softlook.weights.folders import told


@dataclass(frozen=True)
class Started:
    """A run begins, or goes on from a checkpoint."""

    step: int
    steps: int
    device: str
    precision: str
    parameters: int
    limit: float | None = None
    """Seconds after which it ends, where the clock decides."""


@dataclass(frozen=True)
class Trained:
    """A few updates were made."""

    step: int
    loss: float
    """The mean over the targets since the last word."""
    lr: float
    gradient: float
    tokens_per_second: float
    seconds: float


@dataclass(frozen=True)
class Skipped:
    """An update gave no numbers and was left out."""

    step: int
    loss: float
    gradient: float
    place: tuple[int, int]


@dataclass(frozen=True)
class Halved:
    """The memory was full: from now on batches are worked through in smaller pieces. What is learned stays the same."""

    step: int
    parts: int
    """How many pieces each batch is cut into now."""


@dataclass(frozen=True)
class Warned:
    """Something is not as it should be, and the run goes on."""

    step: int
    message: str


@dataclass(frozen=True)
class Evaluated:
    """The held-out data were looked at."""

    step: int
    scores: dict[str, float]
    is_best: bool


@dataclass(frozen=True)
class Sampled:
    """What the model says now, beside what it should."""

    step: int
    samples: list[dict[str, str]]


@dataclass(frozen=True)
class Saved:
    """A checkpoint is on disk."""

    step: int
    path: str


@dataclass(frozen=True)
class Finished:
    """The run is over, or was asked to stop: then the same call goes on from the checkpoint."""

    step: int
    reason: str
    seconds: float
    complete: bool = True
    """False where there is something left to do."""
    signal: str | None = None
    """SIGINT, SIGTERM or SIGHUP, if one of them asked for it."""
    checkpoint: str | None = None
    """The best one."""


Event = Started | Trained | Skipped | Halved | Warned | Evaluated | Sampled | Saved | Finished
Listener = Callable[[Event], None]


class EventLog:
    """Every event as one line of JSON, on disk as soon as it happened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.is_file() and path.read_bytes()[-1:] != b"\n":
            with path.open("ab") as file:  # the last line was cut off by a crash; the next one is not to suffer for it
                file.write(b"\n")

    def __call__(self, event: Event) -> None:
        line: dict[str, Any] = {"event": type(event).__name__.lower(), "time": round(time.time(), 3), **asdict(event)}
        with told("write", self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def read_events(path: Path) -> list[dict[str, Any]]:
    """The story of a run as it is now: without a line that was cut off, and without steps that had to be done again."""
    events: list[dict[str, Any]] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if not isinstance(event, dict) or not isinstance(event.get("step"), int):
            continue
        if event.get("event") == "started":
            events = [earlier for earlier in events if earlier["step"] <= event["step"]]
        events.append(event)
    return events


def scores_at(path: Path, step: int) -> dict[str, float]:
    """What the look at this step found, whichever process of the run looked; nothing where nobody did."""
    looks = read_events(path) if path.is_file() else []
    found = [event["scores"] for event in looks if event["event"] == "evaluated" and event["step"] == step]
    return found[-1] if found else {}
