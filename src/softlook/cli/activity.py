"""What a command is doing now: next to a spinner on a terminal, as a line every ten seconds elsewhere."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from rich.console import Console
from rich.text import Text

from softlook.base.activity import LOGGER_NAME
from softlook.cli.console import active_console

LINE_INTERVAL = 10.0
"""Seconds without a message after which a line is printed."""


class Activity(logging.Handler):
    """What is being done, since when, and when the last message was printed."""

    def __init__(self, name: str, show: Callable[[str], None] = lambda name: None) -> None:
        super().__init__(logging.DEBUG)
        self.name_now, self.show = name, show
        self.started_at = self.printed_at = time.monotonic()

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == LOGGER_NAME:
            self.start(record.getMessage())
        elif record.levelno >= logging.INFO:
            self.note_output()

    def start(self, name: str) -> None:
        """Another activity starts, unless it is the same."""
        if name != self.name_now:
            self.name_now, self.started_at = name, time.monotonic()
            self.show(name)

    def note_output(self) -> None:
        """Something was printed."""
        self.printed_at = time.monotonic()

    def overdue_line(self, interval: float) -> str | None:
        """What to print if nothing was printed for `interval` seconds.

        >>> Activity("reading the data").overdue_line(0.0)
        'Still reading the data, for 0 s ...'
        """
        now = time.monotonic()
        if now - self.printed_at < interval:
            return None
        self.printed_at = now
        return f"Still {self.name_now}, for {now - self.started_at:,.0f} s ..."

    @contextmanager
    def installed(self, console: Console | None = None, interval: float = LINE_INTERVAL) -> Iterator["Activity"]:
        """Follow softlook's messages inside the context; with a console, print a line when one is due."""
        logger, stop = logging.getLogger("softlook"), Event()
        thread = None if console is None else Thread(target=self._print_lines, args=(console, stop, interval))
        logger.addHandler(self)
        try:
            if thread is not None:
                thread.start()
            yield self
        finally:
            stop.set()
            if thread is not None:
                thread.join()
            logger.removeHandler(self)

    def _print_lines(self, console: Console, stop: Event, interval: float) -> None:
        while not stop.wait(min(interval / 10, 1.0)):
            line = self.overdue_line(interval)
            if line is not None:
                console.print(Text(line))


@contextmanager
def activity(name: str) -> Iterator[None]:
    """Show what the command is doing inside the context."""
    console = active_console()
    if console is None:
        yield
    elif console.is_terminal:
        with (
            console.status(f"{name} ...") as status,
            Activity(name, lambda name: status.update(f"{name} ...")).installed(),
        ):
            yield
    else:
        with Activity(name).installed(console):
            yield
