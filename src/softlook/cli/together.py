"""A run in this process, or in several that learn as one."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from softlook.cli.progress import progress, talk
from softlook.cli.talk import Result, Talk
from softlook.recipes.remembering import place_of
from softlook.recipes.running import foresee, run
from softlook.recipes.told import Told
from softlook.train.distributed import launch
from softlook.train.ranks import is_first

UNITS = {"classify": "texts", "fill": "hidden words", "vectors": "neighbours", "table": "rows"}
"""What is learned from, where it is not every token."""


@dataclass(frozen=True)
class Ended:
    """What came of a run, in plain values."""

    folder: Path
    step: int
    complete: bool
    signal: str | None
    scores: dict[str, Any]


def alone(task: str, told: Told[Any]) -> Ended:
    """A run in this process."""
    with progress(UNITS.get(task, "tokens")) as spoken:
        trained = run(task, told, [spoken])
    finished = trained.finished
    return Ended(trained.folder, finished.step, finished.complete, finished.signal, trained.scores)


def together(task: str, told: Told[Any], devices: int) -> Ended:
    """A run in several processes of this machine; the first of them speaks."""
    folder = place_of(task, told)
    told = Told(told.schema, {**told.values, "run": folder, "fresh": False}, told.origins)
    voice = talk()
    is_quiet = voice is None or voice.level > logging.INFO
    return launch(_one_of_many, devices, task, told, is_quiet)


def foreseen(task: str, told: Told[Any]) -> Result:
    """Every setting with its origin, and what a few steps on trial have shown."""
    found = foresee(task, told)
    settled = found.settled
    rows = [f"{name:24} {value:20} {origin}" for name, value, origin in settled.rows()]
    facts = {"settings": settled.values(), "origins": settled.origins, **found.facts()}
    return Result(Path(), facts, "\n".join(rows))


def _one_of_many(task: str, told: Told[Any], is_quiet: bool) -> Ended:
    with Talk(quiet=is_quiet or not is_first()).listening():
        return alone(task, told)
