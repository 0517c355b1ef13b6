"""One benchmark case: run all implementations on the same inputs, check outputs, and time the correct ones."""

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from benchmarks.cases import Case, Inputs, make_inputs
from benchmarks.implementations import SOFTLOOK, softlook_backend
from benchmarks.reference import Reference, compute_reference
from benchmarks.timing import Entry, Samples, Timer, median, ratio_noise, time_interleaved

GOAL = 0.97
"""Speed of softlook relative to the best baseline."""
MAX_ERROR_RATIO = 1.5
"""A baseline whose error is larger than this many times that of softlook is shown, but cannot be the best one."""


@dataclass
class CaseResult:
    """Times, errors and failures of a case."""

    case: Case
    backend: str = "–"
    """The backend that softlook selects."""
    samples: dict[str, Samples] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    excluded: set[str] = field(default_factory=set)
    """Entries that are shown but cannot be the best baseline."""

    def seconds(self, name: str) -> float | None:
        return median(self.samples[name]) if name in self.samples else None

    def best_of(self, prefix: str) -> float | None:
        """The best time among the baselines whose name starts with `prefix`."""
        times = [median(s) for name, s in self.samples.items() if name.startswith(prefix) and name not in self.excluded]
        return min(times, default=None)

    @property
    def best(self) -> str | None:
        """The fastest baseline."""
        baselines = [name for name in self.samples if name != SOFTLOOK and name not in self.excluded]
        return min(baselines, key=lambda name: median(self.samples[name]), default=None)

    @property
    def ratio(self) -> float | None:
        """Time of the best baseline over that of softlook: above 1, softlook is faster."""
        if self.best is None or SOFTLOOK not in self.samples:
            return None
        return median(self.samples[self.best]) / median(self.samples[SOFTLOOK])

    @property
    def noise(self) -> float | None:
        if self.best is None or SOFTLOOK not in self.samples:
            return None
        return ratio_noise(self.samples[self.best], self.samples[SOFTLOOK])

    @property
    def max_baseline_error(self) -> float | None:
        return max((error for name, error in self.errors.items() if name != SOFTLOOK), default=None)

    @property
    def is_below_goal(self) -> bool:
        return self.ratio is not None and self.ratio < GOAL

    @property
    def is_inconclusive(self) -> bool:
        """Whether the ratio is within two noise levels of the goal."""
        return self.ratio is not None and self.noise is not None and abs(self.ratio - GOAL) <= 2 * self.noise


MakeEntries = Callable[[Case, Inputs], Sequence[Entry]]
"""The implementations that run in a case."""


def run_case(case: Case, make_entries: MakeEntries, timer: Timer, budget: float) -> CaseResult:
    """Create inputs, check all outputs and time the correct implementations. Errors are recorded, not raised."""
    result = CaseResult(case)
    try:
        inputs = make_inputs(case)
        entries = list(make_entries(case, inputs))
        result.backend = softlook_backend(case, inputs)
        reference = compute_reference(case, inputs)
        correct = [entry for entry in entries if _is_correct(entry, reference, result)]
        del reference
        result.excluded = {entry.name for entry in entries if entry.informational} | _less_precise(result.errors)
        if correct:
            result.samples = time_interleaved(correct, timer, budget)
    except Exception as error:
        result.failures["the whole case"] = short_message(error)
    free_memory(case.device)
    return result


def _less_precise(errors: dict[str, float]) -> set[str]:
    """Implementations that are fast because they round more, such as plain products in half precision."""
    own = errors.get(SOFTLOOK)
    return set() if own is None else {name for name, error in errors.items() if error > MAX_ERROR_RATIO * own}


def _is_correct(entry: Entry, reference: Reference, result: CaseResult) -> bool:
    """Run an entry once and record its error. A baseline may fail in any way: that is a result."""
    try:
        with entry.context():
            error = reference.error(entry.call())
    except Exception as problem:
        result.failures[entry.name] = short_message(problem)
        free_memory(result.case.device)
        return False
    result.errors[entry.name] = error
    if not reference.passes(error):
        result.failures[entry.name] = f"wrong output, relative error {error:.1e}"
    return reference.passes(error)


def short_message(error: BaseException) -> str:
    """A short error message without file paths."""
    if isinstance(error, torch.OutOfMemoryError) or "out of memory" in str(error).lower():
        return "out of memory"
    if any(phrase in str(error) for phrase in ("No available kernel", "No viable backend")):
        return "unsupported"
    first_line = next(iter(str(error).strip().splitlines()), "")
    message = " ".join(word for word in first_line.split() if "/" not in word)
    return f"{type(error).__name__}: {message[:80]}".rstrip(": ")


def free_memory(device: str) -> None:
    """Release the memory of a case."""
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
