"""The folder of a training run, which names the checkpoint that answers best."""

import json
import re
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

from softlook.base.errors import WeightsError
from softlook.weights.manifest import MANIFEST, check_file, digest
from softlook.weights.schema import read_json

BEST, SETTINGS = "best.json", "settings.json"
FILES, SEAL = "files", "sha256"
ESTIMATOR = "estimator.json"
"""Beside a model's weights: what a table's estimator has learned about columns."""
NAME = re.compile(r"checkpoints/step-\d{9,}")


def best_of(folder: Path) -> Path:
    """The best checkpoint where `folder` is that of a run; else the folder itself.

    >>> best_of(Path("no/run")) == Path("no/run")
    True
    """
    if not (folder / BEST).is_file():
        return folder
    verify_run(folder)
    named = read_sealed(folder / BEST)
    name = named.get("checkpoint")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise WeightsError(f"{folder / BEST} names {name!r:.80}, which is no checkpoint of a run")
    if not (folder / name / MANIFEST).is_file():
        raise WeightsError(f"{folder / BEST} names {name}, which is missing. Was the whole run copied?")
    if digest(folder / name / MANIFEST) != named.get("manifest"):
        raise WeightsError(
            f"{folder / BEST} names {name}, which is not the one that was best then. Take a checkpoint by its own name."
        )
    return folder / name


def verify_run(folder: Path) -> None:
    """Are the files that a run was begun with (settings, config, tokenizer, labels) still the same to the last bit?

    Checkpoints have manifests of their own; logs, scores and reports have none, for no answer comes from them.
    """
    if not (folder / SETTINGS).is_file():
        return
    files = read_sealed(folder / SETTINGS).get(FILES, {})
    for name, wanted in files.items():
        if Path(name).name != name:
            raise WeightsError(f"{folder / SETTINGS} names {name!r:.80}, which is not a file beside it")
        check_file(folder / name, wanted)


def digests(folder: Path, names: Iterable[str]) -> dict[str, Any]:
    """Size and digest of those files that are there, as settings.json keeps them."""
    paths = [folder / name for name in names if (folder / name).is_file()]
    return {FILES: {path.name: {"bytes": path.stat().st_size, "sha256": digest(path)} for path in paths}}


def sealed(content: dict[str, Any]) -> dict[str, Any]:
    """A JSON object with a digest of itself.

    >>> sorted(sealed({"step": 3}))
    ['sha256', 'step']
    """
    return {**content, SEAL: _seal(content)}


def read_sealed(path: Path) -> dict[str, Any]:
    """What `sealed` made, without its digest, after it was compared. Files of earlier versions have no digest."""
    content = read_json(path)
    found = content.pop(SEAL, None)
    if found is not None and found != _seal(content):
        raise WeightsError(f"{path} is not what was saved: it was changed or damaged. Take another copy of the run.")
    return content


def _seal(content: dict[str, Any]) -> str:
    return sha256(json.dumps(json.loads(json.dumps(content))).encode()).hexdigest()
