"""`Logger`: the interface of an experiment logger."""

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

Sample = Mapping[str, str]
DEFAULT_PROJECT = "softlook"
"""Project or experiment name, if the environment sets none."""


@dataclass(frozen=True)
class RunInfo:
    """The run that is logged."""

    folder: Path
    settings: dict[str, str]
    """By dotted name."""
    step: int = 0
    """The step a run is resumed from."""
    run_id: str = ""
    """The logger's id of a run that is resumed; empty for a new run."""

    @property
    def name(self) -> str:
        return self.folder.resolve().name


class Logger(Protocol):
    """Logs the metrics of a run. If it raises an error, it is disabled and the run continues."""

    id: str
    """The logger's id of the run, for resuming."""
    message: str
    """Where the metrics go; empty if there is nothing to report."""
    rewinds: bool
    """Whether it drops metrics of repeated steps by itself. To other loggers each step is logged once."""

    def log_metrics(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def log_samples(self, step: int, samples: Sequence[Sample]) -> None: ...

    def finish(self, step: int, scores: Mapping[str, float], *, complete: bool) -> None: ...


LoggerFactory = Callable[[RunInfo], Logger]


def format_sample(sample: Sample, separator: str = "\n") -> str:
    """A sample as text.

    >>> format_sample({"source": "one", "prediction": "eins"})
    'source: one\\nprediction: eins'
    """
    return separator.join(f"{name}: {text}" for name, text in sample.items())


class _ThreadFilter:
    """A stream that discards what one thread writes."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.thread = stream, threading.get_ident()

    def write(self, text: str) -> int:
        return len(text) if threading.get_ident() == self.thread else self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def discard_stdout() -> Iterator[None]:
    """Discard what this thread prints to stdout, which carries the result of a command."""
    before = sys.stdout
    sys.stdout = filtered = _ThreadFilter(before)
    try:
        yield
    finally:
        if sys.stdout is filtered:
            sys.stdout = before
