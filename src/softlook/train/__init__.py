"""Training: batches and an objective in, a trained model out.

Names are imported lazily, so that settings can be shown without loading torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from softlook.train.batching.batches import DataCursor as DataCursor
    from softlook.train.batching.batches import LengthBucketedBatches as LengthBucketedBatches
    from softlook.train.config import OptimizerConfig as OptimizerConfig
    from softlook.train.config import TrainingConfig as TrainingConfig
    from softlook.train.events import StopTraining as StopTraining
    from softlook.train.train_step import Loss as Loss
    from softlook.train.trainer import fit as fit

MODULES = {
    "DataCursor": "batching.batches",
    "LengthBucketedBatches": "batching.batches",
    "Loss": "train_step",
    "OptimizerConfig": "config",
    "StopTraining": "events",
    "TrainingConfig": "config",
    "fit": "trainer",
}
"""The module of each public name."""


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module 'softlook.train' has no attribute {name!r}")
    return getattr(import_module(f"softlook.train.{MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *MODULES})
