"""Manifests and checksums of checkpoints and runs."""

import json
import re
from array import array
from collections.abc import Iterable, Mapping
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, BinaryIO

from softlook.base.errors import WeightsError
from softlook.weights.atomic_folder import disk_errors
from softlook.weights.schema import read_json

FORMAT_VERSION = 2
"""Version of the on-disk layout of checkpoints. Other versions are refused."""
MANIFEST_FILE = "manifest.json"
BEST_FILE, SETTINGS_FILE = "best.json", "settings.json"
FILES_KEY, CHECKSUM_KEY = "files", "sha256"
ESTIMATOR_FILE = "estimator.json"
"""Preprocessing state of a tabular estimator, next to the model's weights."""
ENSEMBLE_FOLDER = "ensemble"
"""The ensemble of a table run: the folder of an estimator in the run directory."""
CHECKPOINT_NAME = re.compile(r"checkpoints/step-\d{9,}")
FileEntries = dict[str, dict[str, Any]]
"""File name -> size, SHA-256 and, for shards, slices."""


def write_manifest(folder: Path, known_entries: Mapping[str, dict[str, Any]] | None = None) -> None:
    """Write size and SHA-256 of every file in a folder; `known_entries` are taken as given."""
    known_entries = known_entries or {}
    files = {
        path.name: known_entries.get(path.name) or _entry(path)
        for path in sorted(folder.iterdir())
        if path.name != MANIFEST_FILE
    }
    (folder / MANIFEST_FILE).write_bytes(_serialize(files))


class HashingWriter:
    """Writes to a file, and computes its size and SHA-256 on the way."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._digest, self.bytes = file, sha256(), 0

    def write(self, content: "bytes | memoryview | array[int]") -> None:
        self._file.write(content)
        self._digest.update(content)
        self.bytes += memoryview(content).nbytes

    def manifest_entry(self) -> dict[str, Any]:
        """Size and SHA-256 so far."""
        return {"bytes": self.bytes, "sha256": self._digest.hexdigest()}


def verify_manifest(folder: Path, *needed: str) -> FileEntries:
    """Check every file in the manifest against its size and SHA-256, and return the entries.

    >>> verify_manifest(Path("no/such/folder"))
    Traceback (most recent call last):
    softlook.base.errors.WeightsError: no/such/folder holds no manifest.json
    """
    files = read_manifest(folder, *needed)
    for name, expected in files.items():
        verify_file(folder / name, expected)
    return files


def read_manifest(folder: Path, *needed: str) -> FileEntries:
    """The entries of a manifest, without checking the files. Files in `needed` must be listed."""
    with disk_errors("read", folder):
        files = _parse(folder / MANIFEST_FILE)
    for name in needed:
        if name not in files:
            raise WeightsError(f"{folder / MANIFEST_FILE} does not list {name}: this is not a checkpoint")
    return files


def verify_file(path: Path, expected: dict[str, Any]) -> None:
    """Check a file against its manifest entry."""
    with disk_errors("read", path.parent):
        if not path.is_file():
            raise WeightsError(
                f"{path.parent} lacks {path.name!r:.80}, which its manifest lists. Copy the whole folder."
            )
        size = path.stat().st_size
        if size != expected.get("bytes"):
            how = "truncated" if isinstance(expected.get("bytes"), int) and size < expected["bytes"] else "changed"
            raise WeightsError(
                f"{path} is not what was saved: it was {how}. Expected {expected.get('bytes')} bytes, got {size}. "
                "Use another copy."
            )
        found = file_sha256(path)
        if found != expected.get("sha256"):
            raise WeightsError(
                f"{path} is not what was saved: it was changed or damaged. "
                f"Expected SHA-256 {expected.get('sha256')!s:.64}, got {found}. Use another copy."
            )


def unsupported_format(path: Path, version: object) -> str:
    """The error message for another version of the on-disk layout."""
    return (
        f"{path} has format {version!r:.20}; this version of softlook reads format {FORMAT_VERSION}. "
        "Train or import it again, or use the version of softlook that wrote it."
    )


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _serialize(files: dict[str, Any]) -> bytes:
    """The canonical bytes of a manifest, including its own checksum."""
    content = with_checksum({"format": FORMAT_VERSION, FILES_KEY: files})
    return (json.dumps(content, indent=2) + "\n").encode()


def _parse(path: Path) -> dict[str, Any]:
    content = read_json(path)
    files = content.get("files")
    if content.get("format") != FORMAT_VERSION and isinstance(content.get("format"), int):
        raise WeightsError(unsupported_format(path, content["format"]))
    if not isinstance(files, dict) or path.read_bytes() != _serialize(files):
        raise WeightsError(f"{path} is not what was saved: it was changed or damaged. Use another copy of the folder.")
    for name, expected in files.items():
        if Path(name).name != name or not isinstance(expected, dict):
            raise WeightsError(f"{path} lists {name!r:.80}, which is not a file in the same folder")
    return files


def best_checkpoint(folder: Path) -> Path:
    """The best checkpoint of a run directory; any other folder is returned as it is.

    >>> best_checkpoint(Path("no/run")) == Path("no/run")
    True
    """
    if not (folder / BEST_FILE).is_file():
        return folder
    verify_run(folder)
    best = read_checksummed(folder / BEST_FILE)
    name = best.get("checkpoint")
    if not isinstance(name, str) or not CHECKPOINT_NAME.fullmatch(name):
        raise WeightsError(f"{folder / BEST_FILE} names {name!r:.80}, which is not a checkpoint of a run")
    if not (folder / name / MANIFEST_FILE).is_file():
        raise WeightsError(f"{folder / BEST_FILE} names {name}, which is missing. Copy the whole run.")
    if file_sha256(folder / name / MANIFEST_FILE) != best.get("manifest"):
        raise WeightsError(
            f"{folder / BEST_FILE} names {name}, which has changed since. Give the path of a checkpoint instead."
        )
    return folder / name


def verify_run(folder: Path) -> None:
    """Check the files a run started with (settings, config, tokenizer, labels) against their SHA-256.

    Checkpoints have their own manifests; logs, metrics and reports are not checked.
    """
    if not (folder / SETTINGS_FILE).is_file():
        return
    files = read_checksummed(folder / SETTINGS_FILE).get(FILES_KEY, {})
    for name, expected in files.items():
        if Path(name).name != name:
            raise WeightsError(f"{folder / SETTINGS_FILE} lists {name!r:.80}, which is not a file in the same folder")
        verify_file(folder / name, expected)


def file_entries(folder: Path, names: Iterable[str]) -> dict[str, Any]:
    """Size and SHA-256 of the existing files among `names`, as stored in settings.json."""
    paths = [folder / name for name in names if (folder / name).is_file()]
    return {FILES_KEY: {path.name: _entry(path) for path in paths}}


def _entry(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": file_sha256(path)}


def with_checksum(content: dict[str, Any]) -> dict[str, Any]:
    """A JSON object with its own checksum added.

    >>> sorted(with_checksum({"step": 3}))
    ['sha256', 'step']
    """
    return {**content, CHECKSUM_KEY: _checksum(content)}


def read_checksummed(path: Path) -> dict[str, Any]:
    """Read a JSON object and verify its checksum. Files of old versions have none, and no digests of other files."""
    content = read_json(path)
    found = content.pop(CHECKSUM_KEY, None)
    is_old = found is None and FILES_KEY not in content
    if not is_old and found != _checksum(content):
        raise WeightsError(f"{path} is not what was saved: it was changed or damaged. Use another copy of the run.")
    return content


def _checksum(content: dict[str, Any]) -> str:
    return sha256(json.dumps(json.loads(json.dumps(content))).encode()).hexdigest()
