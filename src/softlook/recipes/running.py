"""The recipes by name, for whoever has the name from somebody else."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from softlook.recipes.carrying import carry_out, rehearse
from softlook.recipes.foretelling import Foretold
from softlook.recipes.job import Job, Trained
from softlook.recipes.told import Told
from softlook.train.events import Listener

JOBS = {
    "translate": ("translation", "Translation"),
    "lm": ("language", "Language"),
    "fill": ("filling", "Filling"),
    "classify": ("classification", "Classification"),
    "vectors": ("word_vectors", "Nearness"),
}


def run(task: str, asked: Told[Any], listeners: Sequence[Listener] = ()) -> Trained:
    """Carry a task out."""
    return carry_out(job_of(task), asked, listeners)


def foresee(task: str, asked: Told[Any]) -> Foretold[Any]:
    """Settle everything, and begin nothing."""
    return rehearse(job_of(task), asked)


def job_of(task: str) -> Job[Any, Any]:
    """What a task is about."""
    home, name = JOBS[task]
    return getattr(import_module(f"softlook.recipes.{home}"), name)()
