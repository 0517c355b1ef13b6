"""The recipes by name, for whoever has the name from somebody else."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from softlook.recipes.carrying import carry_out, rehearse
from softlook.recipes.job import Job, Trained
from softlook.recipes.told import Settled, Told
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
    return carry_out(_job(task), asked, listeners)


def foresee(task: str, asked: Told[Any]) -> Settled[Any]:
    """Settle everything, and begin nothing."""
    return rehearse(_job(task), asked)


def _job(task: str) -> Job[Any, Any]:
    home, name = JOBS[task]
    return getattr(import_module(f"softlook.recipes.{home}"), name)()
