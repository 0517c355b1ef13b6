"""A run that crashes behind its checkpoint and goes on, told to a sink as a run tells it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from softlook.recipes.sinks.choice import telling
from softlook.train.events import Evaluated, Event, Finished, Sampled, Started, Trained

SETTINGS = {"optim.lr": "0.001", "training.steps": "4"}
CHANGED = {**SETTINGS, "training.steps": "5"}
SCORES: dict[str, Any] = {"loss": 0.5, "test": {"bleu": 40.0, "signature": "nrefs:1"}}


def trained(step: int) -> Trained:
    return Trained(step, loss=10.0 - step, lr=0.1, gradient=1.0, tokens_per_second=9.0, seconds=float(step))


def looked(step: int) -> list[Event]:
    return [
        Evaluated(step, {"loss": 5.0 - step}, is_best=True),
        Sampled(step, [{"said": f"words {step}", "wanted": "w"}]),
    ]


BROKEN_OFF: list[Event] = [Started(0, 4, "cpu", "float32", 10), trained(1), trained(2), *looked(2), trained(3)]
GOING_ON: list[Event] = [
    Started(1, 4, "cpu", "float32", 10),
    trained(2),
    *looked(2),
    trained(3),
    trained(4),
    *looked(4),
    Finished(4, "all steps are done", 4.0),
]
"""Steps 2 and 3 had been told of already."""


def tell(name: str, folder: Path, events: Sequence[Event], settings: dict[str, str] | None = None) -> None:
    """Tell one sink of events, and of scores where they come to an end."""
    with telling([name], folder, SETTINGS if settings is None else settings) as sinks:
        for event in events:
            sinks(event)
        if isinstance(events[-1], Finished):
            sinks.scores = SCORES
