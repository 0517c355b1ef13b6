"""Selecting and opening the loggers of a run."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from softlook.base.errors import ConfigError
from softlook.recipes.config.schema import NO_LOGGERS
from softlook.recipes.loggers.async_logger import AsyncLogger
from softlook.recipes.loggers.base import RunInfo
from softlook.train.events import Event, Finished

LOGGERS = {
    "tensorboard": "TensorBoardLogger",
    "mlflow": "MLflowLogger",
    "wandb": "WandbLogger",
    "trackio": "TrackioLogger",
}
"""The class of each logger, in the module of its name."""


def select_loggers(names: Sequence[str]) -> tuple[str, ...]:
    """The loggers to open; raise an error if one is not installed. Default: TensorBoard, if installed.

    >>> select_loggers(["none"])
    ()
    """
    if not names:
        return () if missing_packages("tensorboard") else ("tensorboard",)
    if NO_LOGGERS in names:
        if len(names) > 1:
            raise ConfigError(f"loggers: {NO_LOGGERS} cannot be combined with others; got {', '.join(names)}")
        return ()
    for name in names:
        if missing := missing_packages(name):
            raise ConfigError(f"loggers: not installed: {', '.join(missing)}. Try: pip install 'softlook[{name}]'")
    return tuple(dict.fromkeys(names))


def missing_packages(name: str) -> list[str]:
    """The packages a logger needs that are not installed."""
    packages = [name]
    if name == "mlflow" and not os.environ.get("MLFLOW_TRACKING_URI"):
        packages += ["sqlalchemy", "alembic"]  # mlflow-skinny does not install what its local database needs
    return [package for package in packages if find_spec(package) is None]


class LoggerGroup:
    """All loggers of a run, as one callback."""

    def __init__(self, loggers: Sequence[AsyncLogger]) -> None:
        self.loggers, self.finished = loggers, Finished(0, "failed", 0.0, complete=False)
        self.scores: Mapping[str, Any] = {}
        """The scores of the finished run."""

    def __call__(self, event: Event) -> None:
        if isinstance(event, Finished):
            self.finished = event
        for logger in self.loggers:
            logger(event)

    def finish(self) -> None:
        for logger in self.loggers:
            logger.finish(self.finished.step, self.scores, complete=self.finished.complete)


@contextmanager
def open_loggers(names: Sequence[str], folder: Path, settings: Mapping[str, str]) -> Iterator[LoggerGroup]:
    """Import and open the loggers of a run; they are finished however the run ends."""
    info = RunInfo(folder, dict(settings))
    group = LoggerGroup([AsyncLogger(name, _load_class(name), info) for name in names])
    try:
        yield group
    finally:
        group.finish()


def _load_class(name: str) -> Any:
    return getattr(import_module(f"softlook.recipes.loggers.{name}"), LOGGERS[name])
