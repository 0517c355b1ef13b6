"""A list of a folder's files with the digest of each, itself under a digest: no bit can change unnoticed."""

import json
from collections.abc import Mapping
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

from softlook.base.errors import WeightsError
from softlook.weights.folders import told
from softlook.weights.schema import read_json

FORMAT = 1
MANIFEST = "manifest.json"
Listed = dict[str, dict[str, Any]]
"""What a manifest says of each file, by its name."""


def write_manifest(folder: Path, known: Mapping[str, dict[str, Any]] | None = None) -> None:
    """Size and digest of every file, to be compared when it is read; of `known` files, what their writers say."""
    known = known or {}
    files = {
        path.name: known.get(path.name) or {"bytes": path.stat().st_size, "sha256": digest(path)}
        for path in sorted(folder.iterdir())
        if path.name != MANIFEST
    }
    (folder / MANIFEST).write_bytes(_written(files))


def verify(folder: Path, *needed: str) -> Listed:
    """Is every file that the manifest names there, and the same to the last bit? Gives what it says of them.

    >>> verify(Path("no/such/folder"))
    Traceback (most recent call last):
    softlook.base.errors.WeightsError: no/such/folder holds no manifest.json
    """
    files = listed(folder, *needed)
    for name, wanted in files.items():
        check_file(folder / name, wanted)
    return files


def listed(folder: Path, *needed: str) -> Listed:
    """What the manifest says of each file; none is looked at yet."""
    with told("read", folder):
        files = _read(folder / MANIFEST)
    for name in needed:
        if name not in files:
            raise WeightsError(f"{folder / MANIFEST} does not list {name}: it is not that of a checkpoint")
    return files


def check_file(path: Path, wanted: dict[str, Any]) -> None:
    """Is a file as its manifest says?"""
    with told("read", path.parent):
        _compare(path, wanted)


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _written(files: dict[str, Any]) -> bytes:
    """The manifest's bytes: one way to write it, so that a changed one differs even where it means the same."""
    content = {"format": FORMAT, "files": files}
    own = sha256(json.dumps(content).encode()).hexdigest()
    return (json.dumps({**content, "sha256": own}, indent=2) + "\n").encode()


def _read(path: Path) -> dict[str, Any]:
    content = read_json(path)
    files = content.get("files")
    if content.get("format") != FORMAT and isinstance(content.get("format"), int):
        raise WeightsError(f"{path} has format {content['format']}; this softlook reads format {FORMAT}")
    if not isinstance(files, dict) or path.read_bytes() != _written(files):
        raise WeightsError(f"{path} is not what was saved: it was changed or damaged. Take another copy of the folder.")
    for name, wanted in files.items():
        if Path(name).name != name or not isinstance(wanted, dict):
            raise WeightsError(f"{path} names {name!r:.80}, which is not a file beside it")
    return files


def _compare(path: Path, wanted: dict[str, Any]) -> None:
    if not path.is_file():
        raise WeightsError(f"{path.parent} lacks {path.name!r:.80}, which its manifest names. Was all of it copied?")
    size = path.stat().st_size
    if size != wanted.get("bytes"):
        how = "truncated" if isinstance(wanted.get("bytes"), int) and size < wanted["bytes"] else "changed"
        raise WeightsError(
            f"{path} is not what was saved: it was {how}. It had {wanted.get('bytes')} bytes, and has {size}. "
            "Take another copy."
        )
    found = digest(path)
    if found != wanted.get("sha256"):
        raise WeightsError(
            f"{path} is not what was saved: it was changed or damaged. Its digest was {wanted.get('sha256')!s:.64}, "
            f"and is {found}. Take another copy."
        )
