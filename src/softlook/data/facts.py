"""What is known about data, as plain values."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Finding:
    """Something to know: how grave it is, what, what to do about it, and where it is first seen."""

    severity: Literal["error", "warning", "note"]
    what: str
    help: str = ""
    place: str = ""

    def __str__(self) -> str:
        where = f" (first in {self.place})" if self.place else ""
        return f"{self.severity}: {self.what}{where}" + (
            f". {self.help[0].upper()}{self.help[1:]}." if self.help else ""
        )


@dataclass(frozen=True)
class Lengths:
    """How long texts are."""

    shortest: int
    median: int
    p95: int
    """Nineteen of twenty are not longer."""
    longest: int
    total: int


@dataclass(frozen=True)
class Side:
    """The texts of one column."""

    characters: Lengths
    words: Lengths
    scripts: dict[str, int]
    """How many texts begin in each script, the commonest first."""
    odd: dict[str, int]
    """How many texts hold odd characters of each kind."""


@dataclass(frozen=True)
class Facts:
    """What was counted in one way through the data."""

    files: list[dict[str, Any]]
    said: tuple[str, ...]
    examples: int
    empty: int
    bad: int
    duplicates: int
    sides: dict[str, Side]
    labels: dict[str, int] = field(default_factory=dict)
    leaks: dict[str, int] = field(default_factory=dict)
    """For each other set, how many of its questions are also in this one."""
    findings: tuple[Finding, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The same as plain values."""
        return asdict(self)
