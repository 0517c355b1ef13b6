"""Progress bar of a run, in terminals and notebooks."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from importlib import import_module
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as RichProgress
from rich.table import Column

from softlook.base.errors import escape_control
from softlook.train.events import Callback, Evaluated, Event, Finished, Started, StepLogged, StepSkipped

BAR_WIDTH = 20
MIN_INTERVAL = 0.1
"""Seconds between two updates."""
PYTEST_VARIABLE = "PYTEST_CURRENT_TEST"


@contextmanager
def progress_bar(enabled: bool = True) -> Iterator[list[Callback]]:
    """The callbacks that show a progress bar: one in a terminal or a notebook, elsewhere none. Errors close it."""
    display = find_display() if enabled else None
    bars = [] if display is None else [ProgressBar(display)]
    try:
        yield [*bars]
    finally:
        for bar in bars:
            bar.close()


def find_display() -> "type[TerminalDisplay | NotebookDisplay] | None":
    """The display for this process; None if nobody watches, as in a pipeline or under pytest."""
    is_hidden = os.environ.get("SOFTLOOK_PROGRESS", "").lower() in ("0", "false", "no", "off")
    if is_hidden or PYTEST_VARIABLE in os.environ:
        return None
    if Console().is_jupyter:
        return NotebookDisplay
    return TerminalDisplay if sys.stderr is not None and sys.stderr.isatty() else None


class TerminalDisplay:
    """A bar on stderr. What is printed meanwhile appears above it."""

    def __init__(self, console: Console | None = None) -> None:
        bar, line = BarColumn(None, table_column=Column(width=BAR_WIDTH)), Column(no_wrap=True, overflow="ellipsis")
        status = TextColumn("{task.fields[status]}", markup=False, table_column=line)
        console, redirect = console or Console(stderr=True), sys.stdout is not None and sys.stdout.isatty()
        self.bar = RichProgress(bar, status, console=console, auto_refresh=False, redirect_stdout=redirect)
        self.task = self.bar.add_task("", total=None, status="")
        self.bar.start()

    def show(self, share: float | None, text: str) -> None:
        total = None if share is None else 1.0
        self.bar.update(self.task, total=total, completed=share or 0.0, status=text, refresh=True)

    def close(self) -> None:
        self.bar.stop()


class NotebookDisplay:
    """A bar in the output of a notebook cell. It needs IPython only: rich's needs ipywidgets."""

    def __init__(self) -> None:
        self.handle: Any = import_module("IPython.display").display(self._data(None, ""), raw=True, display_id=True)

    def show(self, share: float | None, text: str) -> None:
        self.handle.update(self._data(share, text), raw=True)

    def close(self) -> None:
        """There is nothing to restore."""

    @staticmethod
    def _data(share: float | None, text: str) -> dict[str, str]:
        value = "" if share is None else f' value="{share:.4f}"'
        bar = f'<progress max="1"{value} style="width: {BAR_WIDTH}em; vertical-align: middle"></progress>'
        return {"text/plain": text, "text/html": f'<div style="white-space: pre-wrap">{bar}  {escape(text)}</div>'}


class ProgressBar:
    """Callback that shows steps, loss, validation scores and the time left."""

    def __init__(self, open_display: Callable[[], TerminalDisplay | NotebookDisplay]) -> None:
        self.open_display = open_display
        self.display: TerminalDisplay | NotebookDisplay | None = None
        self.started, self.started_at, self.shown_at = Started(0, 0, "", "", 0), 0.0, 0.0
        self.share: float | None = None
        self.loss, self.validation, self.skipped = "", "", 0

    def __call__(self, event: Event) -> None:
        if isinstance(event, Started):
            self.close()
            self.started, self.started_at, self.display = event, time.monotonic(), self.open_display()
            self._show(f"step {event.step:,}")
        elif isinstance(event, StepLogged):
            self.loss = f"loss {event.loss:.4g}"
            self._log_step(event)
        elif isinstance(event, StepSkipped):
            self.skipped += 1
        elif isinstance(event, Evaluated):
            self.validation = "validation " + ", ".join(f"{name} {score:.4g}" for name, score in event.scores.items())
        elif isinstance(event, Finished):
            self._show(f"{event.step:,} steps in {format_clock(event.seconds)}: {event.reason}")
            self.close()

    def close(self) -> None:
        """Leave the last state on the screen, and the terminal as it was."""
        if self.display is not None:
            self.display.close()
            self.display = None

    def _log_step(self, event: StepLogged) -> None:
        steps, limit = self.started.steps, self.started.limit
        shares, left = list[float](), list[float]()
        if steps:
            seconds_per_step = (time.monotonic() - self.started_at) / max(event.step - self.started.step, 1)
            shares, left = [event.step / steps], [seconds_per_step * (steps - event.step)]
        if limit is not None:
            shares, left = [*shares, event.seconds / limit], [*left, limit - event.seconds]
        self.share = min(max(shares), 1.0) if shares else None
        if time.monotonic() - self.shown_at >= MIN_INTERVAL:
            position = f"{event.step:,}/{steps:,}" if steps else f"step {event.step:,}"
            self._show(position, f"{format_clock(max(min(left), 0))} left" if left else "")

    def _show(self, *parts: str) -> None:
        """Show how far the run is, then its metrics, which are cut off in a narrow terminal."""
        skipped = f"{self.skipped:,} skipped (NaN or infinity)" if self.skipped else ""
        if self.display is not None:
            self.shown_at = time.monotonic()
            text = "  ".join(filter(None, (*parts, self.loss, self.validation, skipped)))
            self.display.show(self.share, escape_control(text))


def format_clock(seconds: float) -> str:
    """A duration as on a clock.

    >>> format_clock(4.2), format_clock(75), format_clock(3700)
    ('0:04', '1:15', '1:01:40')
    """
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
