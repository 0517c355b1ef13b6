"""`softlook eval`: evaluate a run on other data."""

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from softlook.base.errors import ConfigError, escape_control
from softlook.cli.console import CommandResult
from softlook.cli.options import DeviceOption

MAX_MATRIX_CLASSES, MAX_CLASSES, MAX_NAME_CHARS = 12, 30, 12
"""Classes up to which the confusion matrix is printed, classes of the table, and characters of their names."""


def evaluate(
    run: Annotated[Path, Parameter(help="run directory")],
    /,
    *files: Annotated[Path, Parameter(help="test files or folders")],
    data: Annotated[tuple[Path, ...], Parameter(show=False)] = (),
    device: DeviceOption = "auto",
) -> CommandResult:
    """Evaluate a run on other data."""
    if not (*files, *data):
        raise ConfigError(f"no data given. Name a file: softlook eval {run} test.csv")
    from softlook.recipes.text.run import evaluate as evaluate_run  # noqa: PLC0415  (imports torch)

    scores = evaluate_run(run, (*files, *data), device=device)
    return CommandResult(run, {"scores": scores}, format_scores(scores))


def format_scores(scores: Mapping[str, Any]) -> str:
    """Scores as text: numbers, then the tables of a classifier."""
    from softlook.recipes.run_dir.report import format_score, format_score_name  # noqa: PLC0415  (imports torch)

    numbers = {name: value for name, value in scores.items() if not isinstance(value, Mapping | list)}
    lines = [
        f"{format_score_name(name):22} {format_score(value, name) if isinstance(value, float) else value}"
        for name, value in numbers.items()
    ]
    return "\n".join([*lines, *_classification_tables(scores)])


def _classification_tables(scores: Mapping[str, Any]) -> Iterator[str]:
    if classes := scores.get("classes"):
        yield from _classes(classes)
    matrix = scores.get("confusion_matrix")
    if matrix and len(matrix["names"]) <= MAX_MATRIX_CLASSES:
        names = list(map(_name, matrix["names"]))
        rows = [[name, *map(str, counts)] for name, counts in zip(names, matrix["counts"], strict=True)]
        yield from _table("Confusion matrix (rows: labels, columns: predictions)", ["", *names], rows)
    elif confusions := scores.get("confusions"):
        rows = [[_name(one["label"]), _name(one["prediction"]), str(one["examples"])] for one in confusions]
        yield from _table("Most frequent confusions", ["label", "prediction", "examples"], rows, left=2)
    if bins := scores.get("calibration"):
        rows = [
            [f"{one['low']:.0%} to {one['high']:.0%}"]
            + [f"{one['confidence']:.3f}", f"{one['accuracy']:.3f}", str(one["examples"])]
            for one in bins
        ]
        yield from _table("Calibration", ["confidence", "mean", "accuracy", "examples"], rows)
    if wrong := scores.get("wrong_examples"):
        rows = [
            [_name(one["label"]), _name(one["prediction"]), f"{one['confidence']:.3f}", _one_line(one["text"])]
            for one in wrong
        ]
        yield from _table("Most confidently wrong", ["label", "prediction", "confidence", "text"], rows, left=4)


def _classes(classes: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """Precision, recall, F1 and support, the largest class first."""
    ranked = sorted(classes.items(), key=lambda item: -item[1]["support"])
    rows = [
        [_name(name), *(f"{values[metric]:.3f}" for metric in ("precision", "recall", "f1")), str(values["support"])]
        for name, values in ranked[:MAX_CLASSES]
    ]
    yield from _table("Classes", ["class", "precision", "recall", "F1", "support"], rows)
    if len(ranked) > MAX_CLASSES:
        yield f"  {len(ranked) - MAX_CLASSES:,} smaller classes are listed with --json."


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> Iterator[str]:
    """Aligned columns below a title, the first `left` of them to the left; on a terminal cut to its width."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    yield from ("", title)
    for row in (head, *rows):
        cells = enumerate(zip(row, widths, strict=True))
        aligned = (cell.ljust(size) if number < left else cell.rjust(size) for number, (cell, size) in cells)
        line = "  " + "  ".join(aligned).rstrip()
        yield line if width is None or len(line) <= width else line[: width - 1] + "…"


def _one_line(text: str) -> str:
    return escape_control(" ".join(text.split()))


def _name(name: str) -> str:
    """A class name in a table."""
    line = _one_line(name)
    return line if len(line) <= MAX_NAME_CHARS else line[: MAX_NAME_CHARS - 1] + "…"
