"""Training events, callbacks and the event log."""

import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from softlook.weights.atomic_folder import disk_errors


@dataclass(frozen=True)
class Started:
    """A run starts, or resumes from a checkpoint."""

    step: int
    steps: int
    device: str
    precision: str
    parameters: int
    limit: float | None = None
    """Time limit in seconds."""
    phase_step: int = 0
    """The step at which the learning rate began to warm up."""


@dataclass(frozen=True)
class StepLogged:
    """Training metrics, every `log_every` steps."""

    step: int
    loss: float
    """Mean over the targets since the previous log line."""
    lr: float
    grad_norm: float
    tokens_per_second: float
    seconds: float


@dataclass(frozen=True)
class StepSkipped:
    """A step gave NaN or infinity and was not applied."""

    step: int
    loss: float
    grad_norm: float
    cursor: tuple[int, int]


@dataclass(frozen=True)
class BatchSplit:
    """Out of memory: from now on batches are split into more micro-batches. The result stays the same."""

    step: int
    micro_batches: int
    """Per batch."""


@dataclass(frozen=True)
class Warned:
    """A warning; the run continues."""

    step: int
    message: str


@dataclass(frozen=True)
class Evaluated:
    """An evaluation on held-out data."""

    step: int
    scores: dict[str, float]
    is_best: bool


@dataclass(frozen=True)
class Sampled:
    """Outputs of the model next to the references."""

    step: int
    samples: list[dict[str, str]]
    attention: list[dict[str, Any]] = field(default_factory=list)
    """Tokens and attention weights of a few fixed texts, as JSON types."""


@dataclass(frozen=True)
class Saved:
    """A checkpoint was written."""

    step: int
    path: str


@dataclass(frozen=True)
class Finished:
    """The run ended, or was stopped: then the same call resumes from the checkpoint."""

    step: int
    reason: str
    seconds: float
    complete: bool = True
    """False if the run was stopped early by a signal."""
    signal: str | None = None
    """SIGINT, SIGTERM or SIGHUP, if one of them stopped it."""
    checkpoint: str | None = None
    """The best one."""


Event = Started | StepLogged | StepSkipped | BatchSplit | Warned | Evaluated | Sampled | Saved | Finished
Callback = Callable[[Event], None]
"""Called with every event of a run. It may raise `StopTraining`; any other exception ends the run with that error."""
CALLBACK_NOTE = "Raised by the callback "


class StopTraining(Exception):  # noqa: N818  (a request, not an error; the name that Keras users know)
    """Raise it in a callback to end the run after this step, with a final evaluation and a checkpoint.

    The message, if any, becomes part of the reason in `Finished`.
    """


def describe_stop(request: StopTraining | None) -> str:
    """The reason of a run that a callback ended; None if that was on another rank.

    >>> describe_stop(StopTraining("the loss is small enough"))
    'stopped by a callback: the loss is small enough'
    """
    return ": ".join(filter(None, ("stopped by a callback", str(request or ""))))


def dispatch(callbacks: Sequence[Callback], *events: Event) -> None:
    """Call every callback with each event. `StopTraining` is raised at the end, so that all of them see all events.

    >>> seen = []
    >>> dispatch([seen.append, lambda event: 1 / 0], Warned(0, "slow"))
    Traceback (most recent call last):
    ZeroDivisionError: division by zero
    Raised by the callback <lambda>, called with Warned(step=0, message='slow').
    >>> seen
    [Warned(step=0, message='slow')]
    """
    request: StopTraining | None = None
    for event in events:
        for callback in callbacks:
            try:
                callback(event)
            except StopTraining as stop:
                request = request or stop
            except Exception as error:
                _add_callback_note(error, callback, event)
                raise
    if request is not None:
        raise request


def _add_callback_note(error: Exception, callback: Callback, event: Event) -> None:
    """Name the callback in the traceback; of callbacks that call others, the innermost one."""
    if not any(note.startswith(CALLBACK_NOTE) for note in getattr(error, "__notes__", ())):
        name = getattr(callback, "__qualname__", type(callback).__qualname__)
        error.add_note(f"{CALLBACK_NOTE}{name}, called with {event!r:.200}.")


class MetricWindow:
    """Loss, targets and speed since the previous log line."""

    def __init__(self, state: tuple[float, int] = (0.0, 0)) -> None:
        self._reset(*state)

    def _reset(self, total_loss: float = 0.0, targets: int = 0) -> None:
        self.total_loss, self.targets = total_loss, targets
        self.restored_targets, self.started_at = targets, time.monotonic()

    @property
    def state(self) -> tuple[float, int]:
        """Summed loss and targets so far. Kept in checkpoints, so that a resumed run logs the same losses."""
        return self.total_loss, self.targets

    def add(self, loss: float, targets: int) -> None:
        """Add a step: its mean loss over `targets` targets."""
        self.total_loss += loss * targets
        self.targets += targets

    def flush(self, step: int, *, lr: float, grad_norm: float, seconds: float) -> StepLogged:
        """The log line of this window; starts the next one."""
        loss = self.total_loss / max(self.targets, 1)
        speed = (self.targets - self.restored_targets) / max(time.monotonic() - self.started_at, 1e-9)
        self._reset()
        return StepLogged(step, loss, lr, grad_norm, speed, seconds)


def event_name(event: type) -> str:
    """The name of an event in the log.

    >>> event_name(StepLogged)
    'step_logged'
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", event.__name__).lower()


class EventLog:
    """Callback that appends every event to a JSON Lines file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.is_file() and path.read_bytes()[-1:] != b"\n":
            with path.open("ab") as file:  # a crash cut off the last line: end it, so that the next one is readable
                file.write(b"\n")

    def __call__(self, event: Event) -> None:
        line: dict[str, Any] = {"event": event_name(type(event)), "time": round(time.time(), 3), **asdict(event)}
        with disk_errors("write", self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def read_events(path: Path) -> list[dict[str, Any]]:
    """The events of a run, without incomplete lines and without steps repeated after resuming."""
    events: list[dict[str, Any]] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if not isinstance(event, dict) or not isinstance(event.get("step"), int):
            continue
        if event.get("event") == event_name(Started):
            events = [earlier for earlier in events if earlier["step"] <= event["step"]]
        events.append(event)
    return events


def read_scores(path: Path, step: int) -> dict[str, float]:
    """The scores of the last evaluation at `step`; empty if there was none."""
    events = read_events(path) if path.is_file() else []
    evaluated = event_name(Evaluated)
    scores = [event["scores"] for event in events if event["event"] == evaluated and event["step"] == step]
    return scores[-1] if scores else {}
