"""One cell: everyone answers the same question, the answers are checked, and then everyone is timed."""

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from benchmarks.cases import Case, Inputs, make_inputs
from benchmarks.peers import SOFTLOOK, softlook_backend
from benchmarks.timing import Entry, Samples, Watch, median, race, ratio_noise
from benchmarks.truth import Truth, truth

GOAL = 0.97
"""Our speed over that of the best peer."""
ROUGHER = 1.5
"""A peer that errs so many times as much as we do is shown, but not counted."""


@dataclass
class Outcome:
    """What came of a cell."""

    case: Case
    path: str = "–"
    samples: dict[str, Samples] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    outside: set[str] = field(default_factory=set)
    """Who was timed for information only."""

    def seconds(self, name: str) -> float | None:
        return median(self.samples[name]) if name in self.samples else None

    def best_of(self, start: str) -> float | None:
        """The best time among the peers whose name begins so."""
        times = [median(s) for name, s in self.samples.items() if name.startswith(start) and name not in self.outside]
        return min(times, default=None)

    @property
    def best(self) -> str | None:
        """The fastest peer."""
        peers = [name for name in self.samples if name != SOFTLOOK and name not in self.outside]
        return min(peers, key=lambda name: median(self.samples[name]), default=None)

    @property
    def ratio(self) -> float | None:
        """Time of the best peer over ours: above 1 is faster."""
        if self.best is None or SOFTLOOK not in self.samples:
            return None
        return median(self.samples[self.best]) / median(self.samples[SOFTLOOK])

    @property
    def noise(self) -> float | None:
        return (
            None
            if self.best is None or SOFTLOOK not in self.samples
            else ratio_noise(self.samples[self.best], self.samples[SOFTLOOK])
        )

    @property
    def worst_error(self) -> float | None:
        """Of the peers."""
        return max((error for name, error in self.errors.items() if name != SOFTLOOK), default=None)

    @property
    def doubtful(self) -> bool:
        """Is it as near to the goal as two times the noise?"""
        return self.ratio is not None and self.noise is not None and abs(self.ratio - GOAL) <= 2 * self.noise

    @property
    def loses(self) -> bool:
        return self.ratio is not None and self.ratio < GOAL


Gather = Callable[[Case, Inputs], Sequence[Entry]]
"""Who runs in this case."""


def run_cell(case: Case, gather: Gather, watch: Watch, budget: float) -> Outcome:
    """Make the inputs, check every answer, time those that are right. What fails is recorded, not raised."""
    outcome = Outcome(case)
    try:
        inputs = make_inputs(case)
        entries = list(gather(case, inputs))
        outcome.path = softlook_backend(case, inputs)
        right = truth(case, inputs)
        fit = [entry for entry in entries if _answers(entry, right, outcome)]
        del right
        outcome.outside = {entry.name for entry in entries if not entry.counts} | _rougher(outcome.errors)
        if fit:
            outcome.samples = race(fit, watch, budget)
    except Exception as problem:
        outcome.failed["the whole cell"] = why(problem)
    tidy(case.device)
    return outcome


def _rougher(errors: dict[str, float]) -> set[str]:
    """Who answers fast because it rounds more: plain products in half precision, say."""
    mine = errors.get(SOFTLOOK)
    return set() if mine is None else {name for name, error in errors.items() if error > ROUGHER * mine}


def _answers(entry: Entry, right: Truth, outcome: Outcome) -> bool:
    """Does it run, and is it right? A peer may fail in any way it likes: that is a result."""
    try:
        with entry.context():
            error = right.error(entry.call())
    except Exception as problem:
        outcome.failed[entry.name] = why(problem)
        tidy(outcome.case.device)
        return False
    outcome.errors[entry.name] = error
    if not right.passes(error):
        outcome.failed[entry.name] = f"wrong answer, relative error {error:.1e}"
    return right.passes(error)


def why(problem: BaseException) -> str:
    """The reason in a few words, without anybody's paths."""
    if isinstance(problem, torch.OutOfMemoryError) or "out of memory" in str(problem).lower():
        return "out of memory"
    if any(words in str(problem) for words in ("No available kernel", "No viable backend")):
        return "refused"
    first = next(iter(str(problem).strip().splitlines()), "")
    words = " ".join(word for word in first.split() if "/" not in word)
    return f"{type(problem).__name__}: {words[:80]}".rstrip(": ")


def tidy(device: str) -> None:
    """Give back what a cell has used."""
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
