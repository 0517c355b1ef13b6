"""Where a run lies, and what it remembers of its settings."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from softlook.recipes.corpus import stem_of
from softlook.recipes.settings import ASIDE
from softlook.recipes.told import CHOSEN, Settled, Told
from softlook.train.folder import CONFIG, STORY, TOKENIZER, RunFolder, write_json
from softlook.train.settings import FREE
from softlook.weights.beside import LABELS as LABELS
from softlook.weights.runs import SETTINGS as SETTINGS
from softlook.weights.runs import digests, read_sealed, sealed, verify_run

SCORES = "scores.json"
RUNS = Path("runs")


def place_of(name: str, asked: Told[Any]) -> Path:
    """The run's folder; with `fresh`, the first free name beside it."""
    path = Path(asked.get("run") or RUNS / f"{name}-{stem_of(tuple(map(Path, asked.get('data'))))}")
    if not asked.get("fresh"):
        return path
    number = 2
    free = path
    while free.exists():
        free, number = path.with_name(f"{path.name}-{number}"), number + 1
    return free


@dataclass(frozen=True)
class Before:
    """What was chosen when a run began."""

    values: dict[str, Any]
    again: bool
    """Is there another limit of time than then? How many steps fit has to be found out again."""


def remembered(folder: RunFolder, asked: Told[Any]) -> Before | None:
    """What was chosen for a run that goes on. It stays, or the run could not go on."""
    if not folder.exists() or not (folder.path / SETTINGS).is_file():
        return None
    verify_run(folder.path)
    kept = read_sealed(folder.path / SETTINGS)
    chosen = {name: kept["values"][name] for name, origin in kept["origins"].items() if origin == CHOSEN}
    minutes = kept["values"]["training.minutes"]
    again = asked.values.get("training.minutes", minutes) != minutes
    if again:
        chosen = {name: value for name, value in chosen.items() if name not in ("training.steps", "training.minutes")}
    return Before(chosen, again)


def write_settings(folder: RunFolder, task: str, settled: Settled[Any]) -> None:
    """All settings, where each came from, and a digest of every file that the run was begun with."""
    content = {"task": task, "values": settled.values(), "origins": settled.origins}
    write_json(folder.path / SETTINGS, sealed(content | digests(folder.path, (CONFIG, STORY, TOKENIZER, LABELS))))


def lasting(settled: Settled[Any]) -> dict[str, Any]:
    """The values that a run keeps to its end."""
    free = ASIDE | {f"training.{name}" for name in FREE}
    return {name: value for name, value in settled.values().items() if name not in free}
