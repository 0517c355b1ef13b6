"""The recipes by name, for whoever has the name from somebody else."""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from softlook.recipes.carrying import carry_out, rehearse
from softlook.recipes.foretelling import Foretold
from softlook.recipes.job import Job, Trained
from softlook.recipes.told import Told
from softlook.train.events import Listener

if TYPE_CHECKING:
    from softlook.recipes.tables import Fitted
    from softlook.recipes.tables_foreseeing import Foreseen

JOBS = {
    "translate": ("translation", "Translation"),
    "lm": ("language", "Language"),
    "fill": ("filling", "Filling"),
    "classify": ("classification", "Classification"),
    "vectors": ("word_vectors", "Nearness"),
}

TABLE = "table"
"""The task that is not about text: it learns in a loop of its own."""


def run(task: str, asked: Told[Any], listeners: Sequence[Listener] = ()) -> "Trained | Fitted":
    """Carry a task out."""
    if task == TABLE:
        return _tables().table(asked, listeners)
    return carry_out(job_of(task), asked, listeners)


def foresee(task: str, asked: Told[Any]) -> "Foretold[Any] | Foreseen":
    """Settle everything, and begin nothing."""
    if task == TABLE:
        return _tables().foresee(asked)
    return rehearse(job_of(task), asked)


def job_of(task: str) -> Job[Any, Any]:
    """What a task is about."""
    home, name = JOBS[task]
    return getattr(import_module(f"softlook.recipes.{home}"), name)()


def _tables() -> Any:
    """Tables take packages that texts do not."""
    return import_module("softlook.recipes.tables")
