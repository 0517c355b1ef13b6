"""Training progress: a bar on a terminal, a line every ten seconds elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from softlook.cli.activity import LINE_INTERVAL, Activity
from softlook.cli.console import active_console, wrap_lines
from softlook.recipes.config.autosize import format_duration
from softlook.recipes.run_dir.report import format_score, format_score_name
from softlook.train.events import BatchSplit, Evaluated, Event, Finished, Sampled, Started, StepLogged, StepSkipped

EVALUATION_INTERVAL = 1.0
"""Seconds between two lines about evaluations, for runs without a fixed number of steps."""
MAX_SAMPLE_CHARS = 160
BAR_WIDTH = 24
SETTING_UP, TRAINING, FINISHING = "setting up", "training", "computing the final scores"


@contextmanager
def progress(unit: str = "tokens") -> Iterator["ProgressReporter"]:
    """A callback that reports progress; `unit` is what the speed counts."""
    console = active_console()
    if console is None:
        yield ProgressReporter(Console(stderr=True, quiet=True), unit, quiet=True)
        return
    if not console.is_terminal:
        reporter = ProgressReporter(console, unit)
        with reporter.activity.installed(console):
            yield reporter
        return
    columns = (BarColumn(BAR_WIDTH), TextColumn("{task.fields[status]}"))
    with Progress(*columns, console=console, transient=True) as bar:
        reporter = ProgressReporter(console, unit, bar=bar)
        with reporter.activity.installed():
            yield reporter


class ProgressReporter:
    """Training callback that prints events, or shows them on a progress bar."""

    def __init__(
        self, console: Console, unit: str = "tokens", *, quiet: bool = False, bar: Progress | None = None
    ) -> None:
        self.console, self.unit, self.quiet, self.bar = console, unit, quiet, bar
        self.activity = Activity(SETTING_UP, self._show_activity)
        self.task = None if bar is None else bar.add_task("", total=None, status=SETTING_UP)
        self.steps, self.time_limit, self.validation = 0, None, ""
        self.first_step, self.start_time = 0, 0.0
        self.last_line_time = self.last_evaluation_time = 0.0
        self.shows_evaluation = True

    def __call__(self, event: Event) -> None:
        if not self.quiet:
            self.activity.start(FINISHING if isinstance(event, Finished) else TRAINING)
            self._report(event)

    def _report(self, event: Event) -> None:
        if isinstance(event, Started):
            self._start(event)
        elif isinstance(event, StepLogged):
            self._log_step(event)
        elif isinstance(event, Evaluated):
            scores = (f"{format_score_name(name)} {format_score(value, name)}" for name, value in event.scores.items())
            self.validation = ", ".join(scores)
            best = "  (best so far)" if event.is_best else ""
            self.shows_evaluation = self.steps > 0 or self._seconds_since_evaluation() >= EVALUATION_INTERVAL
            if self.shows_evaluation:
                self.last_evaluation_time = time.monotonic()
                self._print(f"step {event.step:,}: validation {self.validation}{best}")
        elif isinstance(event, Sampled):
            for sample in event.samples if self.shows_evaluation else ():
                width = max(map(len, sample), default=0)
                self._print("\n".join(f"    {name:{width}}  {_shorten(text)}" for name, text in sample.items()), "dim")
        elif isinstance(event, StepSkipped):
            self._print(f"step {event.step:,} had non-finite gradients (loss {event.loss}) and was skipped")
        elif isinstance(event, BatchSplit):
            self._print(f"Out of memory: batches are split into {event.micro_batches} micro-batches from now on.")
        elif isinstance(event, Finished):
            self._print(f"Step {event.step:,}: {event.reason}, after {format_duration(event.seconds)}.")
            self._reset_bar()

    def _seconds_since_evaluation(self) -> float:
        return time.monotonic() - self.last_evaluation_time

    def _start(self, event: Started) -> None:
        self.steps, self.time_limit = event.steps, event.limit
        self.first_step, self.start_time = event.step, time.monotonic()
        total = f" of {event.steps:,}" if event.steps else ""
        resuming = f" Resuming after step {event.step:,}{total}." if event.step else ""
        self._print(f"{event.parameters:,} parameters, on {event.device} in {event.precision}.{resuming}")
        if self.bar is not None and self.task is not None:
            self.bar.update(self.task, total=event.steps or event.limit, completed=event.step if event.steps else 0)

    def _log_step(self, event: StepLogged) -> None:
        steps, status = self.steps, f"loss {event.loss:.3f}  {event.tokens_per_second:,.0f} {self.unit}/s"
        if steps:
            seconds_per_step = (time.monotonic() - self.start_time) / max(event.step - self.first_step, 1)
            status += f"  {format_duration(seconds_per_step * (steps - event.step))} left"
        elif self.time_limit is not None:
            status += f"  {format_duration(max(self.time_limit - event.seconds, 0))} left"
        if self.bar is not None and self.task is not None:
            position = f"{event.step:,}/{steps:,}" if steps else f"step {event.step:,}"
            status, validation = f"{position}  {status}", f"  validation {self.validation}" if self.validation else ""
            status += validation if BAR_WIDTH + len(" " + status + validation) <= self.console.width else ""
            self.bar.update(self.task, completed=event.step if steps else event.seconds, status=status)
        elif time.monotonic() - self.last_line_time >= LINE_INTERVAL:
            self.last_line_time = time.monotonic()
            total = f" of {steps:,} ({event.step / steps:.0%})" if steps else ""
            self._print(f"step {event.step:,}{total}  {status}")

    def _reset_bar(self) -> None:
        """What follows training takes an unknown time."""
        if self.bar is not None and self.task is not None:
            self.bar.remove_task(self.task)
            self.task = self.bar.add_task("", total=None, status=self.activity.name_now)

    def _show_activity(self, name: str) -> None:
        """Show what is being done, unless that is training, whose status says more."""
        if self.bar is not None and self.task is not None and name != TRAINING:
            self.bar.update(self.task, status=name)

    def _print(self, text: str, style: str = "") -> None:
        self.activity.note_output()
        self.console.print(Text(wrap_lines(text, self.console), style=style))


def _shorten(text: str) -> str:
    """A text in one line."""
    text = " ".join(text.splitlines())
    return text if len(text) <= MAX_SAMPLE_CHARS else text[: MAX_SAMPLE_CHARS - 1] + "…"
