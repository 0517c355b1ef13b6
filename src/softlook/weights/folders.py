"""A folder is there as a whole or not at all."""

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path

from softlook.base.errors import DiskError as DiskError


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A folder to fill, which takes its name only once everything in it is on disk. Nothing is overwritten.

    write -> fsync each file -> rename -> fsync the parent: whatever happens on the way, `target` is whole or absent.
    """
    refuse_taken(target)
    # Named so that a hard kill leaves nothing behind that could be taken for a model; made with the user's own umask.
    made = target.parent / f".{target.name}.{secrets.token_hex(4)}.partial"
    with told("write", target):
        missing = list(takewhile(lambda parent: not parent.exists(), target.parents))
        existing = target.parents[len(missing)]
        if not existing.is_dir():
            raise DiskError(f"cannot write {target}: {existing} is not a folder. Choose another place.")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            made.mkdir()
            yield made
            for path in sorted(made.rglob("*")):
                sync(path)
            sync(made)
            made.rename(target)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            _remove_empty(missing)
            raise
        sync(target.parent)


def refuse_taken(target: Path) -> None:
    """Raise unless the name is free."""
    if os.path.lexists(target):  # also where a link leads nowhere
        raise DiskError(f"{target} exists already, and softlook overwrites nothing. Choose another name.")


@contextmanager
def told(what: str, path: Path) -> Iterator[None]:
    """An error of the disk becomes one that says what could not be done to which path, and why."""
    try:
        yield
    except OSError as fault:
        room = _room(path) if fault.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        raise DiskError(f"cannot {what} {path}: {fault.strerror or fault}.{room}") from fault


def _room(path: Path) -> str:
    with suppress(OSError):
        nearest = next(parent for parent in path.absolute().parents if parent.exists())
        return f" {shutil.disk_usage(nearest).free:,} bytes are free there."
    return ""


def _remove_empty(folders: list[Path]) -> None:
    for folder in folders:
        with suppress(OSError):  # never there, or in use by now
            folder.rmdir()


def sync(path: Path) -> None:
    """Return once a file or a folder is on disk, and not only on its way there."""
    if path.is_dir() and os.name == "nt":
        return  # Windows has no such call for folders
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
