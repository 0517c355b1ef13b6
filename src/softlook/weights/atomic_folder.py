"""Atomic folder writes and disk error messages."""

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
def atomic_folder(target: Path) -> Iterator[Path]:
    """Create a folder atomically: yields a temporary folder, renamed to `target` on success. Nothing is overwritten.

    Write, fsync each file, rename, fsync the parent: after any failure `target` is complete or absent.
    """
    check_not_exists(target)
    # A hidden name, so that a killed process leaves nothing that looks like a model; created with the user's umask.
    partial = target.parent / f".{target.name}.{secrets.token_hex(4)}.partial"
    with disk_errors("write", target):
        missing = list(takewhile(lambda parent: not parent.exists(), target.parents))
        existing = target.parents[len(missing)]
        if not existing.is_dir():
            raise DiskError(f"cannot write {target}: {existing} is not a folder. Choose another path.")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            partial.mkdir()
            yield partial
            for path in sorted(partial.rglob("*")):
                fsync(path)
            fsync(partial)
            partial.rename(target)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            for folder in missing:
                with suppress(OSError):  # never created, or in use by now
                    folder.rmdir()
            raise
        fsync(target.parent)


def check_not_exists(target: Path) -> None:
    """Raise DiskError if the path exists."""
    if os.path.lexists(target):  # also true for a broken symbolic link
        raise DiskError(f"{target} already exists, and softlook overwrites nothing. Choose another name.")


@contextmanager
def disk_errors(action: str, path: Path) -> Iterator[None]:
    """Convert an OSError to a DiskError that names the action, the path and the reason."""
    try:
        yield
    except OSError as error:
        space = _free_space(path) if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        raise DiskError(f"cannot {action} {path}: {error.strerror or error}.{space}") from error


def _free_space(path: Path) -> str:
    with suppress(OSError):
        nearest = next(parent for parent in path.absolute().parents if parent.exists())
        return f" {shutil.disk_usage(nearest).free:,} bytes are free on this disk."
    return ""


def fsync(path: Path) -> None:
    """Flush a file or a folder to disk."""
    if path.is_dir() and os.name == "nt":
        return  # Windows cannot fsync folders
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def atomic_write_text(path: Path, text: str) -> None:
    """Write a text file atomically: write, fsync, rename, fsync the folder. Unchanged content is not written again."""
    partial = path.with_name(f".{path.name}.partial")
    with disk_errors("write", path):
        if path.is_file() and path.read_bytes() == text.encode():
            return
        try:
            partial.write_text(text, encoding="utf-8")
            fsync(partial)
            partial.replace(path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        fsync(path.parent)
