"""Trace of a beam search: every candidate of every step."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

CandidateStatus = Literal["kept", "finished", "dropped"]


@dataclass(frozen=True)
class BeamCandidate:
    """One token as a continuation of a beam."""

    token: int
    parent: int
    """Index of the beam it continues."""
    score: float
    """Score of the sequence with this token: the sum of log-probabilities after logits processors."""
    logprob: float
    """The model's log-probability of this token."""
    status: CandidateStatus
    beam: int | None = None
    """Index of the beam it became, if it was kept."""


@dataclass(frozen=True)
class BeamStep:
    """All candidates of one sequence at one step, best first; with beam groups, group by group."""

    sequence: int
    length: int
    """Number of new tokens with this one: 1 at the first step."""
    candidates: tuple[BeamCandidate, ...]


StepCallback = Callable[[BeamStep], None]
"""Called at every step, for example `steps.append`."""
