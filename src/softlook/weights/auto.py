"""Loading a model from any supported folder."""

from pathlib import Path

from torch import nn

from softlook.weights.checkpoint import CONFIG_FILE, load
from softlook.weights.hugging_face import from_hugging_face
from softlook.weights.manifest import BEST_FILE, best_checkpoint


def load_auto(folder: Path) -> nn.Module:
    """Load a model from a run directory (best checkpoint), a checkpoint or a Hugging Face folder.

    >>> load_auto(Path("no/such/folder"))
    Traceback (most recent call last):
    softlook.base.errors.WeightsError: no/such/folder is not a folder. ...
    """
    if (folder / BEST_FILE).is_file():
        return load(best_checkpoint(folder))
    return load(folder) if (folder / CONFIG_FILE).is_file() else from_hugging_face(folder)
