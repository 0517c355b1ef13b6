"""Folders are written atomically: after an error or a kill they are complete or absent."""

import errno
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from softlook.base.errors import WeightsError
from softlook.models import GPT
from softlook.weights import from_hugging_face, load, save, tensor_files, to_hugging_face
from softlook.weights.atomic_folder import DiskError, atomic_folder
from tests.weights.folders import SIZES, hugging_face, tokenizer_json

FORMATS: dict[str, tuple[Callable[..., Path], Callable[[Path], Any]]] = {
    "checkpoint": (save, load),
    "Hugging Face": (to_hugging_face, from_hugging_face),
}
CALLS = (
    *((os, name) for name in ("mkdir", "open", "fsync", "rename", "chmod")),
    *((Path, name) for name in ("open", "touch")),
    (tensor_files.SafetensorsWriter, "add"),
)
"""All file system calls of a save."""


class Killed(BaseException):
    """A simulated SIGKILL: nothing runs after it, not even cleanup."""


@contextmanager
def failing(monkeypatch: pytest.MonkeyPatch, at: int, error: BaseException) -> Iterator[list[str]]:
    """Raise an error at file system call number `at`; yields the names of the calls."""
    calls: list[str] = []
    dead = False

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            nonlocal dead
            if dead:
                raise error
            calls.append(name)
            if len(calls) == at + 1:
                dead = isinstance(error, Killed)
                raise error
            return real(*args, **more)

        return call

    with monkeypatch.context() as patch:
        for owner, name in CALLS:
            patch.setattr(owner, name, counted(name, getattr(owner, name)))
        if isinstance(error, Killed):
            patch.setattr(shutil, "rmtree", lambda *args, **more: None)
            patch.setattr(Path, "rmdir", lambda path: None)
        yield calls


def attempts(
    write: Callable[..., Path], folder: Path, patch: pytest.MonkeyPatch, error: BaseException
) -> Iterator[Path]:
    """Saves that fail at the first file system call, at the second, and so on to the last."""
    tokenizer = folder / "words.json"
    tokenizer.write_text(tokenizer_json(), encoding="utf-8")
    model = GPT(SIZES)
    for at in range(1000):
        target = folder / str(at) / "deep" / "model"
        with failing(patch, at, error) as calls:
            try:
                write(model, target, tokenizer=tokenizer)
            except (DiskError, Killed, KeyboardInterrupt):
                pass
            else:
                assert len(calls) <= at, "an error was ignored"
                assert {"mkdir", "open", "fsync", "rename", "add"} <= set(calls)
                return
        yield target
    raise AssertionError("a save makes too many calls")


def left_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.name != "words.json"]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()], ids=repr)
def test_a_save_that_fails_anywhere_leaves_nothing_behind(
    kind: str, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, read = FORMATS[kind]
    committed = 0
    for target in attempts(write, tmp_path, monkeypatch, error):
        if target.exists():  # only the fsync of the parent directory failed
            committed += 1
            read(target)
            shutil.rmtree(target.parents[1])
        assert not left_in(tmp_path)
    assert committed <= 2


@pytest.mark.parametrize("kind", FORMATS)
def test_a_save_that_is_killed_anywhere_leaves_a_complete_folder_or_none(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, read = FORMATS[kind]
    partial = 0
    for target in attempts(write, tmp_path, monkeypatch, Killed()):
        if target.exists():
            read(target)
        others = [path.name for path in target.parent.iterdir() if path != target] if target.parent.exists() else []
        assert all(name.startswith(".model.") and name.endswith(".partial") for name in others)
        partial += bool(others)
        shutil.rmtree(tmp_path / target.parts[len(tmp_path.parts)], ignore_errors=True)
    assert partial, "no save was killed before the rename"


def test_files_are_synced_before_the_folder_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, str]] = []
    opened: dict[int, str] = {}
    real = {name: getattr(os, name) for name in ("open", "fsync", "rename")}

    def open_(path: Any, *args: Any, **more: Any) -> int:
        handle = real["open"](path, *args, **more)
        opened[handle] = Path(path).name
        return handle

    monkeypatch.setattr(os, "open", open_)
    monkeypatch.setattr(os, "fsync", lambda handle: (calls.append(("sync", opened[handle])), real["fsync"](handle)))
    monkeypatch.setattr(os, "rename", lambda a, b: (calls.append(("rename", Path(b).name)), real["rename"](a, b)))
    target = save(GPT(SIZES), tmp_path / "here" / "model")
    rename = calls.index(("rename", "model"))
    assert {("sync", path.name) for path in target.iterdir()} <= set(calls[:rename])
    assert calls[rename + 1 :] == [("sync", "here")]


@pytest.mark.parametrize("limit", [0, 100, 5_000, 20_000])
def test_a_full_disk_raises_an_error_and_leaves_nothing_behind(limit: int, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        with pytest.raises(DiskError, match=r"^cannot write .*model: File too large.$"):
            save(GPT(SIZES), tmp_path / "model")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.iterdir())


def test_the_error_of_a_full_disk_names_the_free_space(tmp_path: Path) -> None:
    with (
        pytest.raises(
            DiskError, match=r"^cannot write .*model: No space left on device. [\d,]+ bytes are free on this disk.$"
        ),
        atomic_folder(tmp_path / "model"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("taken", ["a folder", "an empty folder", "a file", "a dangling link"])
def test_existing_files_are_not_overwritten(kind: str, taken: str, tmp_path: Path) -> None:
    target = tmp_path / "model"
    if taken == "a file":
        target.write_text("mine", encoding="utf-8")
    elif taken == "a dangling link":
        target.symlink_to(tmp_path / "gone")
    else:
        target.mkdir()
        if taken == "a folder":
            (target / "mine").touch()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DiskError, match=r"model already exists, and softlook overwrites nothing. Choose another name"):
        FORMATS[kind][0](GPT(SIZES), target)
    assert sorted(tmp_path.rglob("*")) == before


def test_of_two_concurrent_saves_one_raises_an_error(tmp_path: Path) -> None:
    with pytest.raises(DiskError, match=r"cannot write .*model"), atomic_folder(tmp_path / "model") as folder:
        (folder / "second").touch()
        with atomic_folder(tmp_path / "model") as other:
            (other / "first").touch()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert [path.name for path in (tmp_path / "model").iterdir()] == ["first"]


def test_a_target_below_a_file_raises_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DiskError, match=r"cannot write .*file/model: .*file is not a folder. Choose another path."):
        save(GPT(SIZES), tmp_path / "file" / "model")


@contextmanager
def as_nobody() -> Iterator[None]:
    """Drop root's privileges, which bypass permissions."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_missing_permissions_raise_an_error(tmp_path: Path) -> None:
    reference = hugging_face(tmp_path / "locked" / "hf")
    actual = save(GPT(SIZES), tmp_path / "locked" / "softlook")
    (tmp_path / "locked").chmod(0)
    try:
        with as_nobody():
            with pytest.raises(DiskError, match=r"cannot read .*hf: Permission denied"):
                from_hugging_face(reference)
            with pytest.raises(DiskError, match=r"cannot read .*softlook: Permission denied"):
                load(actual)
            with pytest.raises(DiskError, match=r"cannot write .*new: Permission denied"):
                save(GPT(SIZES), tmp_path / "locked" / "new")
    finally:
        (tmp_path / "locked").chmod(0o755)


def test_folders_and_files_respect_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        target = save(GPT(SIZES), tmp_path / "model")
    finally:
        os.umask(before)
    assert target.stat().st_mode & 0o777 == 0o750
    assert {path.stat().st_mode & 0o777 for path in target.iterdir()} == {0o640}


def test_a_disk_error_is_a_weights_error() -> None:
    assert issubclass(DiskError, WeightsError)
