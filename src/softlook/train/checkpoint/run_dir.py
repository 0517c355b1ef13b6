"""Run directory: settings, metadata, lock.

A run directory belongs to one process at a time and is never overwritten.
"""

import errno
import json
import os
import platform
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from softlook.base.errors import DiskError, TrainingError
from softlook.base.version import VERSION
from softlook.train.distributed import is_rank_zero
from softlook.weights.atomic_folder import atomic_write_text
from softlook.weights.schema import read_json

CONFIG, METADATA, EVENTS = "config.json", "metadata.json", "events.jsonl"
LOCK, LOCK_HOLDER = "run.lock", "lock.json"
CHECKPOINTS, TOKENIZER = "checkpoints", "tokenizer.json"
STARTUP_FILES = {METADATA, EVENTS, LOCK, LOCK_HOLDER, TOKENIZER}
"""What a run that was stopped before it started may have left."""
LOCKS_UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


class RunDir:
    """The directory of one run."""

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
        """The settings that the run was started with."""
        return read_json(self.path / CONFIG)

    def metadata(self) -> dict[str, Any]:
        """Command, start time, data digest, versions and machine."""
        return read_json(self.path / METADATA)

    def open(self, config: dict[str, Any], data_digest: str) -> bool:
        """Start a run, or resume one that was started with the same config and data. True if it resumes."""
        config = json.loads(json.dumps(config))  # as it will be read again: a tuple becomes a list
        if not self.exists():
            self._start(config, data_digest)
            return False
        changes = diff_settings(self.config(), config)
        if self.metadata().get("data") != data_digest:
            changes.append("the data have changed")
        if changes:
            listed = "\n".join(f"  {change}" for change in changes)
            raise TrainingError(
                f"{self.path} was started with different settings:\n{listed}\n"
                "Use the old settings and data to resume; --fresh, or another name with --run-dir, starts a new run."
            )
        return True

    def _make(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = f"cannot create the run directory {self.path}: {error.strerror or error}"
            raise DiskError(f"{reason}. Choose another one with --run-dir.") from error

    def _start(self, config: dict[str, Any], data_digest: str) -> None:
        self._make()
        if any(path.name not in STARTUP_FILES and path.suffix != ".partial" for path in self.path.iterdir()):
            raise TrainingError(f"{self.path} is not empty and not a run. Choose another name with --run-dir.")
        metadata = {
            "command": [_program(Path(sys.argv[0])), *sys.argv[1:]],
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "data": data_digest,
            "versions": {
                "softlook": VERSION,
                "torch": torch.__version__,
                "python": platform.python_version(),
            },
            "machine": {"system": platform.platform(), "cores": os.cpu_count()},
        }
        write_json(self.path / METADATA, metadata)
        write_json(self.path / CONFIG, config)  # last: its presence makes the directory a run

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the directory for this thread, re-entrantly. Of several ranks, rank 0 holds it."""
        if not is_rank_zero():
            yield
            return
        self._make()
        with hold_lock(self.path):
            yield


@contextmanager
def hold_lock(folder: Path) -> Iterator[None]:
    """Hold a folder's file lock, which the system releases when this process dies; raise if another holds it.

    On a filesystem without locks it has no effect.
    """
    lock, holder = FileLock(folder.absolute() / LOCK, is_singleton=True), folder / LOCK_HOLDER
    try:
        lock.acquire(timeout=0)
    except Timeout:
        owner = _read_holder(holder)
        raise TrainingError(
            f"{folder} is in use by {owner}. Wait for it, or choose another name with --run-dir."
        ) from None
    except OSError as error:
        if error.errno not in LOCKS_UNSUPPORTED:
            raise DiskError(f"cannot lock {folder}: {error.strerror or error}") from error
        yield
        return
    is_outermost = lock.lock_counter == 1
    try:
        if is_outermost:
            _write_holder(holder, {"pid": os.getpid(), "host": socket.gethostname()})
        yield
    finally:
        if is_outermost:
            _write_holder(holder, {})
        lock.release()


def _write_holder(path: Path, holder: dict[str, Any]) -> None:
    with suppress(OSError):  # on a full disk the lock is held without its holder's name
        path.write_text(json.dumps(holder), encoding="utf-8")


def _read_holder(path: Path) -> str:
    try:
        holder = json.loads(path.read_text(encoding="utf-8"))
        return f"process {holder['pid']} on {holder['host']}"
    except (OSError, ValueError, KeyError):
        return "another process"


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON file atomically."""
    atomic_write_text(path, json.dumps(content, indent=2) + "\n")


def diff_settings(old: Any, new: Any, name: str = "") -> list[str]:
    """The differences between two nested settings, one line each.

    >>> diff_settings({"optim": {"lr": 1}}, {"optim": {"lr": 2}})
    ['optim.lr: was 1, now 2']
    """
    if isinstance(old, dict) and isinstance(new, dict):
        keys = dict.fromkeys([*old, *new])
        return [
            line
            for key in keys
            for line in diff_settings(old.get(key), new.get(key), f"{name}.{key}" if name else str(key))
        ]
    return [] if old == new else [f"{name}: was {old!r}, now {new!r}"]


def _program(path: Path) -> str:
    """The name that a command was called by; that of the package after `python -m`."""
    return path.parent.name if path.name == "__main__.py" else path.name
