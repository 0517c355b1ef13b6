"""What a command is doing is shown while it prints nothing."""

import io
import logging
import time
from collections.abc import Iterator

import pytest
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from softlook.base.activity import report_activity
from softlook.cli.activity import LINE_INTERVAL, Activity, activity
from softlook.cli.console import ConsoleHandler
from softlook.cli.progress import BAR_WIDTH, ProgressReporter
from softlook.train.events import Finished, Started

INTERVAL = 0.05


@pytest.fixture
def handler() -> Iterator[ConsoleHandler]:
    """A handler that prints to a file instead of a terminal."""
    handler = ConsoleHandler()
    handler.console = Console(file=io.StringIO(), width=80)
    with handler.installed():
        yield handler


def printed(handler: ConsoleHandler) -> str:
    return handler.console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]


def test_lines_are_ten_seconds_apart() -> None:
    assert LINE_INTERVAL == 10


def test_a_line_says_what_is_being_done_while_nothing_else_is_printed(handler: ConsoleHandler) -> None:
    with Activity("reading the data").installed(handler.console, INTERVAL):
        time.sleep(6 * INTERVAL)
        report_activity("training the tokenizer")
        time.sleep(6 * INTERVAL)
    lines = printed(handler).splitlines()
    assert lines[0] == "Still reading the data, for 0 s ..."
    assert lines[-1] == "Still training the tokenizer, for 0 s ..."
    time.sleep(4 * INTERVAL)
    assert printed(handler).splitlines() == lines  # nothing is printed after the context


def test_a_message_postpones_the_line(handler: ConsoleHandler) -> None:
    now = Activity("training")
    with now.installed():
        now.printed_at -= 100
        logging.getLogger("softlook.recipes").info("1,000 rows.")
        assert now.overdue_line(50.0) is None
    assert printed(handler) == "1,000 rows.\n"


def test_a_quiet_command_prints_no_lines() -> None:
    handler = ConsoleHandler(quiet=True)
    handler.console = Console(file=io.StringIO(), width=80)
    with handler.installed(), activity("reading the data"):
        report_activity("training the tokenizer")
    assert printed(handler) == ""


def test_the_progress_bar_shows_what_precedes_and_follows_training() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    bar = Progress(BarColumn(BAR_WIDTH), TextColumn("{task.fields[status]}"), console=console)
    reporter = ProgressReporter(console, "rows", bar=bar)
    assert bar.tasks[0].fields["status"] == "setting up"
    with reporter.activity.installed():
        logging.getLogger("softlook").setLevel(logging.DEBUG)
        report_activity("tokenizing the data")
        assert bar.tasks[0].fields["status"] == "tokenizing the data"
        reporter(Started(0, 10, "cpu", "float32", 10))
        reporter(Finished(10, "max_steps reached", 1.0))
    assert bar.tasks[0].fields["status"] == "computing the final scores"
