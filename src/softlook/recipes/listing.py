"""The runs in a folder, each with how far it got."""

import json
from dataclasses import dataclass
from pathlib import Path

from softlook.recipes.remembering import SETTINGS
from softlook.train.events import read_events
from softlook.train.folder import CONFIG, EVENTS, STORY
from softlook.weights.runs import BEST
from softlook.weights.schema import read_json

TRIALS = "trials.jsonl"
"""What a search has tried, a line each."""


@dataclass(frozen=True)
class Listed:
    """One run, in short."""

    path: Path
    task: str
    began: str
    step: int
    steps: int
    best: float | None
    """The smallest held-out loss."""
    state: str


def runs_in(folder: Path) -> list[Listed]:
    """Every run below a folder, the newest first."""
    found = [_listed(path.parent) for path in sorted(folder.glob(f"**/{CONFIG}")) if (path.parent / STORY).is_file()]
    return sorted(found, key=lambda run: run.began, reverse=True)


def _listed(path: Path) -> Listed:
    began = str(read_json(path / STORY).get("began", ""))
    if (path / TRIALS).is_file():
        return _search(path, began)
    settings = read_json(path / SETTINGS) if (path / SETTINGS).is_file() else {}
    events = read_events(path / EVENTS) if (path / EVENTS).is_file() else []
    best = read_json(path / BEST).get("loss") if (path / BEST).is_file() else None
    step = max((event["step"] for event in events), default=0)
    last = next((event for event in reversed(events) if event["event"] in ("finished", "started")), {})
    state = "not begun"
    if last:
        state = str(last.get("reason", "")) if last["event"] == "finished" else "under way, or broken off"
    steps = settings.get("values", {}).get("training.steps", 0)
    return Listed(path, str(settings.get("task", "?")), began, step, steps, best, state)


def _search(path: Path, began: str) -> Listed:
    """A search is no run, and is not asked: it has settings for one."""
    tried = [json.loads(line) for line in (path / TRIALS).read_text(encoding="utf-8").splitlines()]
    best = next((one["loss"] for one in tried if one["is_best"]), None)
    return Listed(path, "tune", began, len(tried), 0, best, "trials; best.toml has the best settings")
