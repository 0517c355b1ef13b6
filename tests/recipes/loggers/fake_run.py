"""Events of a run that crashes after its checkpoint and resumes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from softlook.recipes.loggers.async_logger import open_loggers
from softlook.train.events import Evaluated, Event, Finished, Sampled, Started, StepLogged

SETTINGS = {"optim.lr": "0.001", "training.max_steps": "4"}
CHANGED = {**SETTINGS, "training.max_steps": "5"}
SCORES: dict[str, Any] = {"loss": 0.5, "test": {"bleu": 40.0, "signature": "nrefs:1"}}


def step_logged(step: int) -> StepLogged:
    return StepLogged(step, loss=10.0 - step, lr=0.1, grad_norm=1.0, tokens_per_second=9.0, seconds=float(step))


def evaluated(step: int) -> list[Event]:
    return [
        Evaluated(step, {"loss": 5.0 - step}, is_best=True),
        Sampled(step, [{"prediction": f"words {step}", "label": "w"}]),
    ]


CRASHED: list[Event] = [
    Started(0, 4, "cpu", "float32", 10),
    step_logged(1),
    step_logged(2),
    *evaluated(2),
    step_logged(3),
]
RESUMED: list[Event] = [
    Started(1, 4, "cpu", "float32", 10),
    step_logged(2),
    *evaluated(2),
    step_logged(3),
    step_logged(4),
    *evaluated(4),
    Finished(4, "max_steps reached", 4.0),
]
"""Steps 2 and 3 were logged before the crash."""


def log_run(name: str, folder: Path, events: Sequence[Event], settings: dict[str, str] | None = None) -> None:
    """Log events with one logger, and final scores if the run finishes."""
    rows = [(name, value, "flag") for name, value in (SETTINGS if settings is None else settings).items()]
    with open_loggers([name], folder, rows) as loggers:
        for event in events:
            loggers(event)
        if isinstance(events[-1], Finished):
            loggers.scores = SCORES
