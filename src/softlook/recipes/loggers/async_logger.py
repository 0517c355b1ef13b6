"""The loggers of a run: selecting them, and logging in a thread each."""

import json
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from queue import Full, Queue
from threading import Thread
from typing import Any

from softlook.base.errors import ConfigError
from softlook.recipes.config.resolve import flatten
from softlook.recipes.config.schema import NO_LOGGERS
from softlook.recipes.loggers.backends import LOGGERS, Logger, LoggerFactory, RunInfo
from softlook.recipes.run_dir.report.data import Settings
from softlook.train.events import Evaluated, Event, Finished, Sampled, Started, StepLogged
from softlook.weights.atomic_folder import atomic_write_text
from softlook.weights.schema import read_json

log = logging.getLogger("softlook.recipes")
STATE_DIR = "loggers"
"""The subfolder of a run directory with the state of each logger."""
MAX_QUEUE = 10_000
"""Events that may wait for a slow logger before it is disabled."""
FINISH_TIMEOUT = 60.0
"""Seconds a logger gets to finish."""
METRICS = ("loss", "lr", "grad_norm", "tokens_per_second")
LoggedEvent = Started | StepLogged | Evaluated | Sampled


@dataclass(frozen=True)
class Finish:
    """The last item of a queue."""

    step: int
    scores: Mapping[str, Any]
    complete: bool


@dataclass
class LoggedSteps:
    """The logger's id of the run, and the last logged step of each kind: nothing is logged twice."""

    path: Path
    id: str = ""
    steps: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def read(path: Path) -> "LoggedSteps":
        return LoggedSteps(path, **read_json(path)) if path.is_file() else LoggedSteps(path)

    def is_new(self, kind: str, step: int) -> bool:
        return step > self.steps.get(kind, -1)

    def record(self, kind: str, step: int) -> None:
        self.steps[kind] = max(step, self.steps.get(kind, -1))
        self.write()

    def write(self) -> None:
        self.path.parent.mkdir(exist_ok=True)
        atomic_write_text(self.path, json.dumps({"id": self.id, "steps": self.steps}))


class AsyncLogger:
    """Passes events to one logger in a thread. If it fails, one warning is logged and the run continues without it."""

    def __init__(self, name: str, factory: LoggerFactory, info: RunInfo) -> None:
        self.name, self.factory, self.info, self.is_disabled = name, factory, info, False
        self.queue: Queue[LoggedEvent | Finish] = Queue(MAX_QUEUE)
        self.thread = Thread(target=self._run, name=f"softlook {name}", daemon=True)
        self.thread.start()

    def __call__(self, event: Event) -> None:
        if isinstance(event, LoggedEvent) and not self.is_disabled:
            self._put(event)

    def finish(self, step: int, scores: Mapping[str, Any], *, complete: bool) -> None:
        """Log the final scores, and wait for the logger to finish."""
        if not self.is_disabled:
            self._put(Finish(step, scores, complete))
            self.thread.join(FINISH_TIMEOUT)
        if self.thread.is_alive():
            self._disable(f"it did not finish within {FINISH_TIMEOUT:g} s")

    def _put(self, event: LoggedEvent | Finish) -> None:
        try:
            self.queue.put_nowait(event)
        except Full:
            self._disable(f"it is {MAX_QUEUE:,} events behind")

    def _disable(self, reason: str) -> None:
        if not self.is_disabled:
            self.is_disabled = True
            log.warning(f"Logging to {self.name} is disabled: {reason}. All metrics are in {self.info.folder}.")

    def _run(self) -> None:
        try:
            self._process(iter(self.queue.get, None))
        except BaseException as error:  # a logger must not end the run
            self._disable(
                f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else 'no message'}"
            )

    def _process(self, events: Iterator[LoggedEvent | Finish | None]) -> None:
        first = next(events)
        if not isinstance(first, Started):
            return
        logged = LoggedSteps.read(self.info.folder / STATE_DIR / f"{self.name}.json")
        logger = self.factory(replace(self.info, step=first.step, run_id=logged.id))
        if logger.message:
            log.info(logger.message)
        logged.id = logger.id
        logged.write()
        for event in events:
            if self.is_disabled:
                return
            if isinstance(event, Finish):
                _finish(logger, event, logged)
                return
            log_event(logger, event, logged)


def log_event(logger: Logger, event: LoggedEvent | None, logged: LoggedSteps) -> None:
    """Log one event, unless it was logged before a crash."""
    if event is None or isinstance(event, Started):
        return
    kind = {StepLogged: "train", Evaluated: "validation", Sampled: "samples"}[type(event)]
    is_rewound = logger.rewinds and not isinstance(event, Sampled)
    if not is_rewound and not logged.is_new(kind, event.step):
        return
    if isinstance(event, StepLogged):
        logger.log_metrics(event.step, {f"{kind}/{name}": float(getattr(event, name)) for name in METRICS})
    elif isinstance(event, Evaluated):
        logger.log_metrics(event.step, flatten_metrics(kind, event.scores))
    else:
        logger.log_samples(event.step, event.samples)
    logged.record(kind, event.step)


def _finish(logger: Logger, end: Finish, logged: LoggedSteps) -> None:
    """Log the final scores, unless they were logged before."""
    is_new = logger.rewinds or logged.is_new("final", end.step)
    logger.finish(end.step, flatten_metrics("final", end.scores) if is_new else {}, complete=end.complete)
    if end.scores:
        logged.record("final", end.step)


def flatten_metrics(kind: str, scores: Mapping[str, Any]) -> dict[str, float]:
    """The numbers among nested scores, by names that every logger accepts.

    >>> flatten_metrics("final", {"loss": 1.5, "test": {"bleu": 40, "signature": "nrefs:1", "f1 of 'a'": 0.5}})
    {'final/loss': 1.5, 'final/test.bleu': 40.0, 'final/test.f1 of _a_': 0.5}
    """
    return {
        f"{kind}/{re.sub(r'[^A-Za-z0-9_. /-]', '_', name)}": float(value)
        for name, value in flatten(scores).items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


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
def open_loggers(names: Sequence[str], folder: Path, settings: Settings) -> Iterator[LoggerGroup]:
    """Open the loggers of a run; they are finished however the run ends."""
    info = RunInfo(folder, {name: value for name, value, _ in settings})
    group = LoggerGroup([AsyncLogger(name, LOGGERS[name], info) for name in names])
    try:
        yield group
    finally:
        group.finish()
