"""The folder of a training run, which names the checkpoint that answers best."""

import re
from pathlib import Path

from softlook.base.errors import WeightsError
from softlook.weights.manifest import MANIFEST, digest
from softlook.weights.schema import read_json

BEST = "best.json"
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
    named = read_json(folder / BEST)
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
