"""A run's folder: it explains itself, belongs to one process at a time, and is never overwritten."""

import json
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from softlook.base.errors import DiskError, TrainingError
from softlook.base.version import VERSION
from softlook.train.lock import held
from softlook.train.ranks import is_first
from softlook.weights.folders import sync, told
from softlook.weights.schema import read_json

CONFIG, STORY, EVENTS, LOCK = "config.json", "run.json", "events.jsonl", "lock.json"
CHECKPOINTS, TOKENIZER = "checkpoints", "tokenizer.json"
OURS = {STORY, EVENTS, LOCK, TOKENIZER}
"""What a run that was stopped before it really began may have left."""


class RunFolder:
    """The folder of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def events(self) -> Path:
        return self.path / EVENTS

    @property
    def checkpoints(self) -> Path:
        return self.path / CHECKPOINTS

    @property
    def tokenizer(self) -> Path:
        return self.path / TOKENIZER

    def exists(self) -> bool:
        return (self.path / CONFIG).is_file()

    def config(self) -> dict[str, Any]:
        """What the run was started with."""
        return read_json(self.path / CONFIG)

    def story(self) -> dict[str, Any]:
        """When and how it began, on what, with which data."""
        return read_json(self.path / STORY)

    def open(self, config: dict[str, Any], data_digest: str) -> bool:
        """Begin a run, or go on with one that was started with the same config and data. True where it goes on."""
        config = json.loads(json.dumps(config))  # as it will be read again: a tuple is a list there
        if not self.exists():
            self._begin(config, data_digest)
            return False
        changes = differences(self.config(), config)
        if self.story().get("data") != data_digest:
            changes.append("the data are not the same as when it began")
        if changes:
            listed = "\n".join(f"  {change}" for change in changes)
            raise TrainingError(
                f"{self.path} was begun otherwise:\n{listed}\n"
                "Give the old settings and data to go on with it; --fresh, or another name with --run, begins anew."
            )
        return True

    def _make(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as fault:
            why = f"cannot make the folder {self.path}: {fault.strerror or fault}"
            raise DiskError(f"{why}. Choose another place with --run.") from fault

    def _begin(self, config: dict[str, Any], data_digest: str) -> None:
        self._make()
        if any(path.name not in OURS and path.suffix != ".partial" for path in self.path.iterdir()):
            raise TrainingError(f"{self.path} holds something else than a run. Choose another name with --run.")
        story = {
            "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
            "began": datetime.now(UTC).isoformat(timespec="seconds"),
            "data": data_digest,
            "versions": {
                "softlook": VERSION,
                "torch": torch.__version__,
                "python": platform.python_version(),
            },
            "machine": {"system": platform.platform(), "cores": os.cpu_count()},
        }
        write_json(self.path / STORY, story)
        write_json(self.path / CONFIG, config)  # last: where it is, the folder is a run

    @contextmanager
    def mine(self) -> Iterator[None]:
        """Hold the folder: two runs in one would spoil each other's work. Of several processes the first holds it."""
        if not is_first():
            yield
            return
        self._make()
        with held(self.path / LOCK):
            yield


def write_json(path: Path, content: dict[str, Any]) -> None:
    """A small file, whole or not at all. Nothing is written twice."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def write_text(path: Path, text: str) -> None:
    """The same for any text: write, fsync, rename, fsync the folder."""
    partial = path.with_name(f".{path.name}.partial")
    with told("write", path):
        if path.is_file() and path.read_bytes() == text.encode():
            return
        try:
            partial.write_text(text, encoding="utf-8")
            sync(partial)
            partial.replace(path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        sync(path.parent)


def differences(old: Any, new: Any, name: str = "") -> list[str]:
    """What changed between two configs, a line each.

    >>> differences({"optim": {"lr": 1}}, {"optim": {"lr": 2}})
    ['optim.lr: 1 then, 2 now']
    """
    if isinstance(old, dict) and isinstance(new, dict):
        names = dict.fromkeys([*old, *new])
        return [
            line
            for key in names
            for line in differences(old.get(key), new.get(key), f"{name}.{key}" if name else str(key))
        ]
    return [] if old == new else [f"{name}: {old!r} then, {new!r} now"]
