"""Sweep: many cases in one table, a summary, and a longer rerun of lost ones."""

from collections.abc import Sequence

from benchmarks.cases import Case
from benchmarks.contest import GOAL, ROUGHER, Gather, Outcome, run_cell
from benchmarks.peers import SOFTLOOK
from benchmarks.report import Report, ms
from benchmarks.timing import Deadline, Watch, geometric_mean

HOW_TO_READ = (
    "Milliseconds, medians of interleaved rounds. Peers have precomputed masks; softlook builds the mask in "
    "words in every call. `sdpa` is `scaled_dot_product_attention`, the fastest of the ways to ask it. `ratio` is the "
    "best peer's time over ours (above 1: softlook is faster), `±` half the distance between its quartiles over the "
    "rounds. "
    "`error` is the relative error against float64 (with dropout: how far the answer leans off the undropped one). "
    f"A peer that errs more than {ROUGHER} times as much as softlook is shown, but is not the best peer: plain "
    "products in half precision are fast because they round every score."
)


class Sweep:
    """The same contest over many cells."""

    def __init__(
        self, report: Report, gather: Gather, columns: Sequence[str], watch: Watch, deadline: Deadline
    ) -> None:
        self.report, self.gather, self.columns = report, gather, columns
        self.watch, self.deadline = watch, deadline
        self.outcomes: list[Outcome] = []
        self.budget = 1.0

    def run(self, cases: Sequence[Case], budget: float) -> None:
        """One table."""
        self.budget = budget
        self.outcomes += self._table(cases, budget)

    def conclude(self, what: str) -> None:
        """Measure what may have been lost by noise again, for twice as long, and say what it all adds up to."""
        lost = [outcome for outcome in self.outcomes if outcome.loses]
        doubtful = [outcome for outcome in lost if outcome.doubtful]
        again = doubtful
        if doubtful and self.deadline.passed():
            self.report.say("The time was up: cells that may be lost by noise could not be measured again.")
        elif doubtful:
            self.report.say(f"Cells below {GOAL} by less than twice their ±, measured again for twice as long:")
            again = self._table([outcome.case for outcome in doubtful], 2 * self.budget)
        self._add_up(what)
        self._name_lost([outcome for outcome in lost if outcome not in doubtful] + [o for o in again if o.loses])
        for outcome in self.outcomes:
            if SOFTLOOK in outcome.failed:
                self.report.in_short(f"softlook FAILED at {label(outcome.case)}: {outcome.failed[SOFTLOOK]}")

    def _table(self, cases: Sequence[Case], budget: float) -> list[Outcome]:
        heads = ("cell", "mask", "kind", "pass", "path", SOFTLOOK, *self.columns)
        table = self.report.table(*heads, "best peer", "ratio", "±", "GFLOP/s", "error", "peers' error")
        outcomes = []
        for case in cases:
            if self.deadline.passed():
                self.report.say(f"The time was up: {len(cases) - len(outcomes)} cells were left out.")
                break
            outcome = run_cell(case, self.gather, self.watch, budget)
            outcomes.append(outcome)
            mine = outcome.seconds(SOFTLOOK)
            times = [ms(mine), *(self._cell(outcome, name) for name in self.columns)]
            rate = None if mine is None else f"{case.flops / mine / 1e9:.0f}"
            named = (f"{case.name} {case.sizes}", case.mask, case.dtype_name, case.passes, outcome.path)
            errors = (exact(outcome.errors.get(SOFTLOOK)), exact(outcome.worst_error))
            table.add(*named, *times, outcome.best, outcome.ratio, outcome.noise, rate, *errors)
        for outcome in outcomes:
            tell_failures(self.report, outcome, self.columns)
        return outcomes

    @staticmethod
    def _cell(outcome: Outcome, name: str) -> str:
        seconds = outcome.best_of("sdpa") if name == "sdpa" else outcome.seconds(name)
        if seconds is not None:
            return ms(seconds)
        reason = outcome.failed.get(name, "–")
        return reason if len(reason) < 15 else "failed"

    def _add_up(self, what: str) -> None:
        ratios = [outcome.ratio for outcome in self.outcomes if outcome.ratio is not None]
        reach = sum(ratio >= GOAL for ratio in ratios)
        self.report.in_short(
            f"{what}: {reach} of {len(ratios)} cells at {GOAL} of the best peer's speed or above; "
            f"geometric mean {geometric_mean(ratios):.2f}, lowest {min(ratios, default=0):.2f}"
        )

    def _name_lost(self, lost: list[Outcome]) -> None:
        if lost:
            self.report.say(f"Below {GOAL}, by more than noise or both times, the slowest first:")
        for outcome in sorted(lost, key=lambda outcome: outcome.ratio or 0):
            numbers = f"{outcome.ratio:.2f} ± {outcome.noise:.2f}"
            self.report.say(f"- {label(outcome.case)}: {numbers}, `{outcome.path}` behind {outcome.best}")


def label(case: Case) -> str:
    return f"{case.name} {case.sizes} {case.mask} {case.dtype_name} {case.passes}"


def exact(error: float | None) -> str:
    return "–" if error is None else f"{error:.0e}"


def tell_failures(report: Report, outcome: Outcome, shown: Sequence[str] = ()) -> None:
    """Say who could not answer, unless the table does."""
    told = {name: reason for name, reason in outcome.failed.items() if name not in shown or len(reason) >= 15}
    if told:
        words = "; ".join(f"{name}: {reason}" for name, reason in told.items())
        report.say(f"- {label(outcome.case)}: {words}")
