"""Layout of messages and progress, on a terminal and elsewhere."""

import io

import pytest
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from softlook.cli.console import wrap_lines
from softlook.cli.progress import BAR_WIDTH, ProgressReporter
from softlook.train.events import Evaluated, Event, Finished, Sampled, Started, StepLogged

LONG_LINE = "error: there is no such column. Columns: " + ", ".join(f"column_{number}" for number in range(40))


def terminal(width: int) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, soft_wrap=True, highlight=False)


@pytest.mark.parametrize("width", [40, 80, 120])
def test_wrapping_breaks_no_word_and_loses_none(width: int) -> None:
    lines = wrap_lines(LONG_LINE, terminal(width)).split("\n")
    assert max(map(len, lines)) <= width
    assert " ".join(lines) == LONG_LINE


def test_aligned_columns_and_long_words_are_not_wrapped() -> None:
    row, word = "  softlook predict runs/a --data FILE  use the model", "/a-long-path/" * 9
    assert wrap_lines(row, terminal(20)) == row
    assert wrap_lines(f"Starting {word}", terminal(20)) == f"Starting\n{word}"


def test_wrapped_lines_keep_their_indentation() -> None:
    lines = wrap_lines("  id: every value is unique", terminal(20)).split("\n")
    assert lines == ["  id: every value is", "    unique"]


def test_lines_are_not_wrapped_in_a_file() -> None:
    assert wrap_lines(LONG_LINE, Console(file=io.StringIO(), width=40)) == LONG_LINE


def test_scores_are_formatted_as_in_the_report() -> None:
    console = terminal(80)
    ProgressReporter(console)(Evaluated(6, {"loss": 0.424, "rmse": 101266.4}, is_best=False))
    assert console.file.getvalue() == "step 6: validation loss 0.4240, RMSE 101,266\n"  # pyright: ignore[reportAttributeAccessIssue]


def events_with_a_time_limit() -> list[Event]:
    """A run with a time limit of a minute, after a quarter of it."""
    return [
        Started(0, 0, "cpu", "float32", 10, limit=60.0),
        Evaluated(20, {"loss": 0.424, "accuracy": 0.81}, is_best=True),
        StepLogged(23, 0.5, 1e-3, 1.0, 1234.0, 15.0),
    ]


def test_with_a_time_limit_the_remaining_time_is_printed() -> None:
    console = Console(file=io.StringIO(), width=80)
    reporter = ProgressReporter(console, "rows")
    for event in events_with_a_time_limit():
        reporter(event)
    assert "step 23  loss 0.500  1,234 rows/s  45 s left\n" in console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("width", [80, 120])
def test_the_progress_bar_shows_the_elapsed_fraction_of_the_time_limit_and_fits_on_one_line(width: int) -> None:
    bar = Progress(BarColumn(BAR_WIDTH), TextColumn("{task.fields[status]}"), console=terminal(width))
    reporter = ProgressReporter(bar.console, "rows", bar=bar)
    for event in events_with_a_time_limit():
        reporter(event)
    (task,) = bar.tasks
    assert task.percentage == 25 and "45 s left" in task.fields["status"]
    assert BAR_WIDTH + 1 + len(task.fields["status"]) <= width
    assert ("validation loss" in task.fields["status"]) == (width == 120)


def test_the_progress_bar_is_reset_when_a_run_has_finished() -> None:
    bar = Progress(BarColumn(BAR_WIDTH), TextColumn("{task.fields[status]}"), console=terminal(80))
    reporter = ProgressReporter(bar.console, "rows", bar=bar)
    for event in (*events_with_a_time_limit(), Finished(40, "the time limit was reached", 60.0, True, None, None)):
        reporter(event)
    (task,) = bar.tasks
    assert task.total is None and task.fields["status"] == "computing the final scores"


def test_samples_are_aligned_and_each_takes_one_line() -> None:
    console = Console(file=io.StringIO(), width=80)
    ProgressReporter(console)(Sampled(6, [{"text": "one\ntwo", "prediction": "good"}]))
    assert console.file.getvalue() == "    text        one two\n    prediction  good\n"  # pyright: ignore[reportAttributeAccessIssue]


def test_samples_are_printed_with_their_evaluation_or_not_at_all() -> None:
    """Evaluations by the clock may follow each other quickly."""
    console = Console(file=io.StringIO(), width=80)
    reporter = ProgressReporter(console)
    reporter(Started(0, 0, "cpu", "float32", 10, limit=60.0))
    for step in (10, 20):
        reporter(Evaluated(step, {"loss": 0.5}, is_best=True))
        reporter(Sampled(step, [{"text": f"text of {step}"}]))
    printed = console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
    assert "step 10" in printed and "text of 10" in printed
    assert "step 20" not in printed and "text of 20" not in printed
