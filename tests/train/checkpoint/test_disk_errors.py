"""A disk error or a kill at any system call of a save: the last good checkpoint always survives."""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from softlook.base.errors import WeightsError
from softlook.train.checkpoint.checkpoint_manager import CheckpointManager
from softlook.train.checkpoint.train_state import Progress
from softlook.weights import tensor_files
from softlook.weights.manifest import verify_manifest
from tests.train.checkpoint.test_checkpoint_manager import make_state

CALLS = (
    *((os, name) for name in ("mkdir", "open", "fsync", "rename", "replace", "unlink", "rmdir")),
    (Path, "open"),
    (tensor_files.SafetensorsWriter, "add"),
    (shutil, "copyfile"),
)
"""All disk operations of a save."""


class Killed(BaseException):
    """A simulated SIGKILL: no later operation succeeds, not even cleanup."""


@contextmanager
def failing(monkeypatch: pytest.MonkeyPatch, at: int, error: BaseException) -> Iterator[list[str]]:
    """Raise at operation number `at`, and after a kill at every later one. Yields the names of the operations."""
    calls: list[str] = []

    def counting(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            calls.append(name)
            if len(calls) == at + 1 or (len(calls) > at and isinstance(error, Killed)):
                raise error
            return real(*args, **more)

        return call

    with monkeypatch.context() as patch:
        for owner, name in CALLS:
            patch.setattr(owner, name, counting(name, getattr(owner, name)))
        yield calls


def save(run: Path, step: int) -> None:
    CheckpointManager(run, keep_checkpoints=1).save(make_state(), Progress(step=step), run.parent / "words.json")


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), KeyboardInterrupt(), Killed()], ids=repr)
def test_an_error_at_any_call_of_a_save_leaves_a_checkpoint(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes: list[int] = []
    (tmp_path / "words.json").touch()
    for at in count():
        run = tmp_path / str(at)
        save(run, 1)
        with failing(monkeypatch, at, error) as calls:
            try:
                save(run, 2)
            except (WeightsError, KeyboardInterrupt, Killed):
                raised = True
            else:
                raised = False
        if len(calls) <= at:
            assert set(calls) >= {"mkdir", "open", "fsync", "rename", "replace", "add", "copyfile"}
            break
        outcomes.append(check(run, raised=raised, killed=isinstance(error, Killed)))
    assert len(outcomes) > 25, "a save has more disk operations"
    assert set(outcomes) == {1, 2}


def check(run: Path, *, raised: bool, killed: bool) -> int:
    """Every checkpoint is intact, the best one exists, and the run can resume. Returns the step it resumes from."""
    manager = CheckpointManager(run, keep_checkpoints=1)
    for path in manager.list_checkpoints():
        verify_manifest(path)
    best = manager.best()
    assert best is not None
    verify_manifest(best)
    if not killed:
        assert not list(manager.folder.glob(".step-000000002*")), "a failed save left files behind"
    manager.remove_partial()
    assert not list(run.rglob(".*"))
    progress = manager.restore(make_state(), pytest.fail)
    assert progress is not None
    assert raised or progress.step == 2
    return progress.step


def test_files_are_synced_before_the_rename_and_folders_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    operations: list[tuple[str, str]] = []
    opened: dict[int, Path] = {}
    real = {name: getattr(os, name) for name in ("open", "fsync", "rename", "replace")}

    def open_(path: Any, *args: Any, **more: Any) -> int:
        handle = real["open"](path, *args, **more)
        opened[handle] = Path(path)
        return handle

    def sync(handle: int) -> None:
        operations.append(("sync", opened[handle].name))
        real["fsync"](handle)

    (tmp_path / "words.json").touch()
    save(tmp_path / "run", 1)
    monkeypatch.setattr(os, "open", open_)
    monkeypatch.setattr(os, "fsync", sync)
    for name in ("rename", "replace"):
        monkeypatch.setattr(
            os, name, lambda a, b, name=name: (operations.append((name, Path(b).name)), real[name](a, b))
        )
    save(tmp_path / "run", 2)
    order = operations[
        : operations.index(("rename", ".step-000000001.partial"))
    ]  # later ones delete the old checkpoint
    commit = order.index(("rename", "step-000000002"))
    written = {path.name for path in CheckpointManager(tmp_path / "run").path(2).iterdir()}
    assert {("sync", name) for name in written} <= set(order[:commit])
    assert order[commit + 1 :] == [
        ("sync", "checkpoints"),
        ("sync", ".best.json.partial"),
        ("replace", "best.json"),
        ("sync", "run"),
    ]
