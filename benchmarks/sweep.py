"""Sweep: many cases in one table, a summary, and a longer rerun of inconclusive ones."""

from collections.abc import Sequence

from benchmarks.cases import Case
from benchmarks.comparison import GOAL, MAX_ERROR_RATIO, CaseResult, MakeEntries, run_case
from benchmarks.implementations import SOFTLOOK
from benchmarks.report import Report, ms
from benchmarks.timing import Deadline, Timer, geometric_mean

MAX_CELL_CHARS = 15
"""Longer failure messages are reported below the table."""
HOW_TO_READ = (
    "Milliseconds, medians of interleaved rounds. Baselines have precomputed masks; softlook creates its mask in "
    "every call. `sdpa` is `scaled_dot_product_attention`, the fastest of the ways to call it. `ratio` is the time of "
    "the best baseline over that of softlook (above 1: softlook is faster), `±` half its interquartile range over the "
    "rounds. `error` is the relative error against float64 (with dropout: of the projection on the output without "
    f"dropout). A baseline with more than {MAX_ERROR_RATIO} times the error of softlook is shown, but cannot be the "
    "best one: plain products in half precision are fast because they round every score."
)


class Sweep:
    """The same comparison over many cases."""

    def __init__(
        self, report: Report, make_entries: MakeEntries, columns: Sequence[str], timer: Timer, deadline: Deadline
    ) -> None:
        self.report, self.make_entries, self.columns = report, make_entries, columns
        self.timer, self.deadline = timer, deadline
        self.results: list[CaseResult] = []
        self.budget = 1.0

    def run(self, cases: Sequence[Case], budget: float) -> None:
        """Run the cases and add one table."""
        self.budget = budget
        self.results += self._table(cases, budget)

    def conclude(self, title: str) -> None:
        """Rerun inconclusive cases below the goal for twice as long, and add the summary."""
        below = [result for result in self.results if result.is_below_goal]
        inconclusive = [result for result in below if result.is_inconclusive]
        rerun = inconclusive
        if inconclusive and self.deadline.passed():
            self.report.text("The time limit was reached: inconclusive cases were not rerun.")
        elif inconclusive:
            self.report.text(f"Cases below {GOAL} by less than twice their ±, rerun for twice as long:")
            rerun = self._table([result.case for result in inconclusive], 2 * self.budget)
        self._summarize(title)
        conclusive = [result for result in below if result not in inconclusive]
        self._list_below_goal(conclusive + [result for result in rerun if result.is_below_goal])
        for result in self.results:
            if SOFTLOOK in result.failures:
                self.report.summarize(f"softlook FAILED at {label(result.case)}: {result.failures[SOFTLOOK]}")

    def _table(self, cases: Sequence[Case], budget: float) -> list[CaseResult]:
        header = ("case", "mask", "dtype", "pass", "backend", SOFTLOOK, *self.columns)
        table = self.report.table(*header, "best baseline", "ratio", "±", "GFLOP/s", "error", "baseline error")
        results = []
        for case in cases:
            if self.deadline.passed():
                self.report.text(f"The time limit was reached: {len(cases) - len(results)} cases were skipped.")
                break
            result = run_case(case, self.make_entries, self.timer, budget)
            results.append(result)
            seconds = result.seconds(SOFTLOOK)
            times = [ms(seconds), *(self._cell(result, name) for name in self.columns)]
            rate = None if seconds is None else f"{case.flops / seconds / 1e9:.0f}"
            description = (f"{case.name} {case.sizes}", case.mask, case.dtype_name, case.passes, result.backend)
            errors = (format_error(result.errors.get(SOFTLOOK)), format_error(result.max_baseline_error))
            table.add(*description, *times, result.best, result.ratio, result.noise, rate, *errors)
        for result in results:
            report_failures(self.report, result, self.columns)
        return results

    @staticmethod
    def _cell(result: CaseResult, name: str) -> str:
        seconds = result.best_of("sdpa") if name == "sdpa" else result.seconds(name)
        if seconds is not None:
            return ms(seconds)
        reason = result.failures.get(name, "–")
        return reason if len(reason) < MAX_CELL_CHARS else "failed"

    def _summarize(self, title: str) -> None:
        ratios = [result.ratio for result in self.results if result.ratio is not None]
        reached = sum(ratio >= GOAL for ratio in ratios)
        self.report.summarize(
            f"{title}: {reached} of {len(ratios)} cases at {GOAL} of the best baseline's speed or above; "
            f"geometric mean {geometric_mean(ratios):.2f}, minimum {min(ratios, default=0):.2f}"
        )

    def _list_below_goal(self, results: list[CaseResult]) -> None:
        if results:
            self.report.text(f"Below {GOAL} by more than the noise, or in both runs, the slowest first:")
        for result in sorted(results, key=lambda result: result.ratio or 0):
            ratio = f"{result.ratio:.2f} ± {result.noise:.2f}"
            self.report.text(f"- {label(result.case)}: {ratio}, `{result.backend}` slower than {result.best}")


def label(case: Case) -> str:
    return f"{case.name} {case.sizes} {case.mask} {case.dtype_name} {case.passes}"


def format_error(error: float | None) -> str:
    return "–" if error is None else f"{error:.0e}"


def report_failures(report: Report, result: CaseResult, columns: Sequence[str] = ()) -> None:
    """Add the failures of a case, except for those that are in its row of the table."""
    failures = [
        f"{name}: {reason}"
        for name, reason in result.failures.items()
        if name not in columns or len(reason) >= MAX_CELL_CHARS
    ]
    if failures:
        report.text(f"- {label(result.case)}: {'; '.join(failures)}")
