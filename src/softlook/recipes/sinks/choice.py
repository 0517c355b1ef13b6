"""Which sinks a run has: those that were asked for, or TensorBoard where it is installed."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from softlook.base.errors import ConfigError
from softlook.recipes.settings import NO_SINKS
from softlook.recipes.sinks.sink import About
from softlook.recipes.sinks.telling import Telling
from softlook.train.events import Event, Finished

SINKS = {
    "tensorboard": "TensorBoard",
    "mlflow": "MLflow",
    "wandb": "WeightsAndBiases",
    "trackio": "Trackio",
}
"""The class of each, in the file of the sink's name."""


def sinks_of(asked: Sequence[str]) -> tuple[str, ...]:
    """The sinks to open, each of which is installed.

    >>> sinks_of(["none"])
    ()
    """
    if not asked:
        return () if lacking("tensorboard") else ("tensorboard",)
    if NO_SINKS in asked:
        if len(asked) > 1:
            raise ConfigError(f"sinks: {NO_SINKS} and others do not go together; {', '.join(asked)} came")
        return ()
    for name in asked:
        if missing := lacking(name):
            raise ConfigError(f"sinks: not installed: {', '.join(missing)}. Try: pip install 'softlook[{name}]'")
    return tuple(dict.fromkeys(asked))


def lacking(name: str) -> list[str]:
    """The packages of a sink that are not there."""
    needed = [name]
    if name == "mlflow" and not os.environ.get("MLFLOW_TRACKING_URI"):
        needed += ["sqlalchemy", "alembic"]  # the small MLflow comes without what its database in the folder takes
    return [package for package in needed if find_spec(package) is None]


class Sinks:
    """All sinks of a run, as one listener."""

    def __init__(self, tellings: Sequence[Telling]) -> None:
        self.tellings, self.finished = tellings, Finished(0, "it failed", 0.0, complete=False)
        self.scores: Mapping[str, Any] = {}
        """What the finished run is worth."""

    def __call__(self, event: Event) -> None:
        if isinstance(event, Finished):
            self.finished = event
        for telling in self.tellings:
            telling(event)

    def end(self) -> None:
        for telling in self.tellings:
            telling.end(self.finished.step, self.scores, complete=self.finished.complete)


@contextmanager
def telling(names: Sequence[str], folder: Path, settings: Mapping[str, str]) -> Iterator[Sinks]:
    """Sinks that hear of a run as long as it lasts, however it ends. Their packages are loaded only now."""
    about = About(folder, dict(settings))
    opened = Sinks([Telling(name, _class_of(name), about) for name in names])
    try:
        yield opened
    finally:
        opened.end()


def _class_of(name: str) -> Any:
    return getattr(import_module(f"softlook.recipes.sinks.{name}"), SINKS[name])
