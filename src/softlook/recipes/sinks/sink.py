"""What a sink is told about a run, and what it has to be able to do."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

Sample = Mapping[str, str]
PROJECT = "softlook"
"""What runs are gathered under, where nobody names a project or an experiment."""


@dataclass(frozen=True)
class About:
    """The run that a sink hears of."""

    folder: Path
    settings: dict[str, str]
    """By full name."""
    step: int = 0
    """How far it got before it was begun this time."""
    known: str = ""
    """What the sink called the run before; empty where it hears of it for the first time."""

    @property
    def name(self) -> str:
        return self.folder.resolve().name


class Sink(Protocol):
    """One place that a run's numbers go to. Whatever it raises, it is left out from then on and the run goes on."""

    id: str
    """What it calls the run, to go on with it later."""
    said: str
    """Where the numbers go, in a sentence; empty where it need not be said."""
    forgets: bool
    """Does it take back by itself the numbers of steps that are done again? Others are told of each step once."""

    def numbers(self, step: int, values: Mapping[str, float]) -> None: ...

    def samples(self, step: int, samples: Sequence[Sample]) -> None: ...

    def close(self, step: int, scores: Mapping[str, float], *, complete: bool) -> None: ...


Open = Callable[[About], Sink]


def in_lines(sample: Sample, between: str = "\n") -> str:
    """A sample as text.

    >>> in_lines({"source": "one", "said": "eins"})
    'source: one\\nsaid: eins'
    """
    return between.join(f"{name}: {text}" for name, text in sample.items())
