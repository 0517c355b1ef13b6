"""Options and state of one call of `fit`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from softlook.base.errors import ConfigError
from softlook.tabular.presets import Hyperparameters
from softlook.tabular.pretraining.pretrain import Pretrained
from softlook.tabular.training.runtime import Epoch, EpochCallback, TimeBudget
from softlook.tabular.training.trainer import EpochTrainer, TableTrainer

TrainLoop = Callable[[TableTrainer, TimeBudget], list[Epoch]]
"""Runs a trainer to its end; returns the history."""
FitCallback = Callable[[Epoch], Any]
"""Called with the metrics of an epoch; training ends if it returns True."""


@dataclass(frozen=True)
class FitOptions:
    """Optional arguments of `fit`."""

    groups: Any = None
    callbacks: tuple[FitCallback, ...] = ()

    def callback(self, trainer: EpochTrainer, first: EpochCallback) -> EpochCallback:
        """One callback for all: the first is the progress line."""

        def call(epoch: Epoch) -> None:
            first(epoch)
            answers = [callback(epoch) for callback in self.callbacks]
            trainer.is_done = trainer.is_done or any(answer is True for answer in answers)

        return call if self.callbacks else first

    def check_chunked(self, time_column: Any) -> None:
        """Raise an error for options that require a table in memory."""
        if self.groups is not None or time_column is not None:
            raise ConfigError("groups and time_column require a table in memory; got a chunked one. Load it first.")


NO_OPTIONS = FitOptions()


@dataclass(frozen=True)
class FitContext:
    """Start time, initial state and settings of a fit."""

    started: float
    is_warm: bool
    """Whether the existing model is trained further."""
    pretrained: Pretrained | None
    hparams: Hyperparameters
    """Sizes may be open."""
    seed: int
    device: torch.device
    seconds: float | None = None
    """Time limit."""
    options: FitOptions = NO_OPTIONS

    @property
    def is_new(self) -> bool:
        """Whether the preprocessing is fitted anew."""
        return not self.is_warm and self.pretrained is None
