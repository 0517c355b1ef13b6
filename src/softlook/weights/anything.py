"""A model, whatever kind of folder it lies in."""

from pathlib import Path

from torch import nn

from softlook.weights.checkpoint import CONFIG, load
from softlook.weights.hugging_face import from_hugging_face
from softlook.weights.runs import BEST, best_of


def load_any(folder: Path) -> nn.Module:
    """The model of a run (its best checkpoint), of a checkpoint, or of a folder of Hugging Face's.

    >>> load_any(Path("no/such/folder"))
    Traceback (most recent call last):
    softlook.base.errors.WeightsError: no/such/folder is not a folder. ...
    """
    if (folder / BEST).is_file():
        return load(best_of(folder))
    return load(folder) if (folder / CONFIG).is_file() else from_hugging_face(folder)
