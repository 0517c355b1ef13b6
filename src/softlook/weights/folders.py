"""A folder is there as a whole or not at all."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from softlook.base.errors import WeightsError


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A folder to fill, which takes its name only once everything in it is on disk. Nothing is overwritten.

    write -> fsync each file -> rename -> fsync the parent: whatever happens on the way, `target` is whole or absent.
    """
    if target.exists():
        raise WeightsError(f"{target} exists already, and softlook overwrites nothing. Choose another name.")
    target.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".partial", dir=target.parent))
    try:
        yield made
        for path in sorted(made.rglob("*")):
            _sync(path)
        _sync(made)
        made.chmod(0o755)  # mkdtemp makes it for one's own eyes only
        made.rename(target)
        _sync(target.parent)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def _sync(path: Path) -> None:
    if path.is_dir() and os.name == "nt":
        return  # Windows has no such call for folders
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
