"""How words are laid out on a terminal, and elsewhere."""

import io

import pytest
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from softlook.cli.console import wrap_lines
from softlook.cli.progress import BAR_WIDTH, ProgressReporter
from softlook.train.events import Evaluated, Event, Finished, Started, StepLogged

LONG = "error: there is no such column. There are " + ", ".join(f"column_{number}" for number in range(40))


def terminal(width: int) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, soft_wrap=True, highlight=False)


@pytest.mark.parametrize("width", [40, 80, 120])
def test_on_a_terminal_no_word_is_broken_and_none_is_lost(width: int) -> None:
    lines = wrap_lines(LONG, terminal(width)).split("\n")
    assert max(map(len, lines)) <= width
    assert " ".join(lines) == LONG


def test_a_row_of_cells_and_a_long_word_stay_whole() -> None:
    row, word = "  softlook predict runs/a --data FILE  answers", "/a-long-path/" * 9
    assert wrap_lines(row, terminal(20)) == row
    assert wrap_lines(f"Beginning {word}", terminal(20)) == f"Beginning\n{word}"


def test_what_is_indented_stays_so() -> None:
    assert wrap_lines("  id: every value is another one", terminal(20)).split("\n") == [
        "  id: every value is",
        "    another one",
    ]


def test_for_a_file_a_line_is_a_line() -> None:
    assert wrap_lines(LONG, Console(file=io.StringIO(), width=40)) == LONG


def test_scores_are_spelled_as_in_the_table_of_scores() -> None:
    console = terminal(80)
    ProgressReporter(console)(Evaluated(6, {"loss": 0.424, "rmse": 101266.4}, is_best=False))
    assert console.file.getvalue() == "step 6: validation loss 0.4240, RMSE 101,266\n"  # pyright: ignore[reportAttributeAccessIssue]


def by_the_clock() -> list[Event]:
    """A run that has a minute, seen after a quarter of it."""
    return [
        Started(0, 0, "cpu", "float32", 10, limit=60.0),
        Evaluated(20, {"loss": 0.424, "accuracy": 0.81}, is_best=True),
        StepLogged(23, 0.5, 1e-3, 1.0, 1234.0, 15.0),
    ]


def test_where_the_clock_decides_it_is_said_how_long_is_left() -> None:
    console = Console(file=io.StringIO(), width=80)
    reporter = ProgressReporter(console, "rows")
    for event in by_the_clock():
        reporter(event)
    assert "step 23  loss 0.500  1,234 rows/s  45 s left\n" in console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("width", [80, 120])
def test_a_bar_shows_the_share_of_the_time_and_stays_on_its_line(width: int) -> None:
    bar = Progress(BarColumn(BAR_WIDTH), TextColumn("{task.fields[status]}"), console=terminal(width))
    reporter = ProgressReporter(bar.console, "rows", bar=bar)
    for event in by_the_clock():
        reporter(event)
    (task,) = bar.tasks
    assert task.percentage == 25 and "45 s left" in task.fields["status"]
    assert BAR_WIDTH + 1 + len(task.fields["status"]) <= width
    assert ("validation loss" in task.fields["status"]) == (width == 120)


def test_when_a_run_is_over_the_bar_says_nothing_of_it_any_more() -> None:
    bar = Progress(BarColumn(BAR_WIDTH), TextColumn("{task.fields[status]}"), console=terminal(80))
    reporter = ProgressReporter(bar.console, "rows", bar=bar)
    for event in (*by_the_clock(), Finished(40, "the time is up", 60.0, True, None, None)):
        reporter(event)
    (task,) = bar.tasks
    assert task.total is None and task.fields["status"] == ""
