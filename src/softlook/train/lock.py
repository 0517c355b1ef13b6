"""One process at a time: a lock that the system itself takes back when its holder dies."""

import errno
import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from softlook.base.errors import TrainingError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

TAKEN = (errno.EAGAIN, errno.EACCES, errno.EDEADLK)
FAR = 1 << 30
"""Where Windows locks a byte, so that the words before it can still be read."""
_HELD: dict[Path, int] = {}
"""Locks of this process, and the thread that holds each: who holds a folder may hold it once more."""


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold a lock file; where somebody else does, say who."""
    path, thread = path.absolute(), threading.get_ident()
    if _HELD.get(path) == thread:
        yield
        return
    with path.open("a+", encoding="utf-8") as file:
        if path in _HELD or not _lock(file):
            raise TrainingError(
                f"{path.parent} is in use by {_holder(file)}. Wait for it, or choose another name with --run."
            )
        _HELD[path] = thread
        try:
            _say(file, {"pid": os.getpid(), "host": socket.gethostname()})
            yield
        finally:
            _say(file, {})
            del _HELD[path]


def _lock(file: TextIOWrapper) -> bool:
    """Take it if it is free; it is let go when the file is closed, or with the process."""
    try:
        if sys.platform == "win32":
            file.seek(FAR)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as fault:
        return fault.errno not in TAKEN  # a disk that knows no locks keeps nobody out
    return True


def _say(file: TextIOWrapper, holder: dict[str, Any]) -> None:
    """Write down who holds it. On a full disk it is held without a word."""
    with suppress(OSError):
        file.seek(0)
        file.truncate()
        json.dump(holder, file)
        file.flush()


def _holder(file: TextIOWrapper) -> str:
    file.seek(0)
    try:
        holder = json.load(file)
        return f"process {holder['pid']} on {holder['host']}"
    except (ValueError, KeyError):
        return "another process"
