"""Batches in, a trained model out. What is learned from, and what is learned, is handed in.

A name is fetched when it is first asked for, so that settings can be shown without waiting for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from softlook.train.batches import Place as Place
    from softlook.train.batches import Shuffled as Shuffled
    from softlook.train.loop import fit as fit
    from softlook.train.settings import Optim as Optim
    from softlook.train.settings import Training as Training
    from softlook.train.step import Loss as Loss

HOMES = {"Place": "batches", "Shuffled": "batches", "fit": "loop", "Optim": "settings", "Training": "settings"}
HOMES |= {"Loss": "step"}
"""Where each public name lives."""


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module 'softlook.train' has no attribute {name!r}")
    return getattr(import_module(f"softlook.train.{HOMES[name]}"), name)
