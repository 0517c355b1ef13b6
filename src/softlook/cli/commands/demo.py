"""`softlook demo`: train a Transformer to translate dates."""

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text
from torch import Tensor

from softlook.cli.console import CommandResult, active_handler
from softlook.cli.progress import progress
from softlook.lens import attention_figure
from softlook.lens.figures.color import STEPS as COLOR_STEPS
from softlook.lens.figures.color import colormap, text_color
from softlook.recipes.demo.dates import (
    EXAMPLE_DATE,
    LANGUAGES,
    NUM_HELD_OUT,
    STEPS,
    TRAIN_FILE,
    DateScores,
    align_date,
    held_out_dates,
    held_out_forms,
    read_dates,
    score_dates,
    shipped_model,
    train,
)
from softlook.recipes.inference.pipeline import Pipeline
from softlook.train.events import Event, Finished

log = logging.getLogger("softlook.cli")
FIGURE = "alignment.svg"
EXAMPLES = (
    EXAMPLE_DATE,
    "3. März 2022",
    "2022年3月3日木曜日",
    "četvrtak, 3. ožujka 2022.",
    "четвер, 3 березня 2022 р.",
)


def demo(
    text: str | None = None,
    /,
    *,
    to: Path = Path("demo"),
    pretrained: bool = False,
    steps: int = STEPS,
    max_minutes: float = 5.0,
) -> CommandResult:
    """Train a Transformer that translates dates in many languages to ISO 8601, and plot its attention.

    Parameters
    ----------
    text
        a date of your own to translate at the end; default: jeudi 3 mars 2022
    to
        folder for the data, the run and the figure
    pretrained
        do not train: use the model that comes with softlook
    steps
        training steps
    max_minutes
        time limit of the training in minutes
    """
    log.info(f"A Transformer that translates dates in {len(LANGUAGES)} languages: {EXAMPLE_DATE!r} is 2022-03-03.")
    if pretrained:
        to.mkdir(parents=True, exist_ok=True)
        pipeline = shipped_model()
    else:
        finished: list[Finished] = []
        with progress() as reporter:
            keep = partial(_keep_finished, finished)
            pipeline = train(to, [reporter, keep], steps=steps, max_minutes=max_minutes, progress=False)
        _warn_if_shortened(finished, steps, max_minutes)
    return _report(pipeline, text or EXAMPLE_DATE, to, pretrained)


def _keep_finished(finished: list[Finished], event: Event) -> None:
    finished += [event] if isinstance(event, Finished) else []


def _warn_if_shortened(finished: list[Finished], steps: int, max_minutes: float) -> None:
    """Say why the scores are lower than usual, if the time limit ended the training."""
    if finished and finished[-1].complete and finished[-1].step < steps:
        log.warning(
            f"{max_minutes:g} minutes were enough for {finished[-1].step:,} of {steps:,} steps: this machine is busy "
            "or slow, and the scores are lower than after all steps. "
            f"Continue: softlook demo --max-minutes {2 * max_minutes:g}"
        )


def _report(pipeline: Pipeline, text: str, to: Path, pretrained: bool) -> CommandResult:
    handler = active_handler()
    console = Console(stderr=True, quiet=True) if handler is None else handler.console
    dates = score_dates(pipeline, held_out_dates(NUM_HELD_OUT, 2))
    forms = score_dates(pipeline, held_out_forms(NUM_HELD_OUT // 2, 3))
    console.print(_score_table(dates, forms))
    for date, translation in zip(EXAMPLES, read_dates(pipeline, EXAMPLES), strict=True):
        log.info(f"    {translation}   {date}")
    translation, weights = align_date(pipeline, text)
    log.info(f"\nCross-attention for {text!r} -> {translation}, in tenths, a row for each output character:")
    _print_map(console, translation, text, weights)
    title = f"{text} → {translation}"
    figure = attention_figure(weights, queries=list(translation), keys=list(text), title=title)
    figure.save(to / FIGURE)
    for line in _next_steps(to, pretrained):
        log.info(line)
    scores = {"unseen dates": dates.accuracy, "unseen formats": forms.accuracy}
    return CommandResult(to / FIGURE, {"translation": translation, "accuracy": scores})


def _score_table(dates: DateScores, forms: DateScores) -> Table:
    table = Table("held-out data", "correct", "of", "", box=None, header_style="dim")
    for name, scores in (("unseen dates", dates), ("unseen formats", forms)):
        table.add_row(name, f"{scores.correct:,}", f"{scores.count:,}", f"{scores.accuracy:.1%}")
    hardest = sorted(dates.by_language.items(), key=lambda item: item[1])[:3]
    table.add_row("hardest languages", ", ".join(f"{name} {accuracy:.0%}" for name, accuracy in hardest))
    return table


def _print_map(console: Console, rows: Sequence[str], columns: Sequence[str], weights: Tensor) -> None:
    """An attention map as colored squares, with digits for terminals without color."""
    console.print(Text("      " + "".join(f"{name} " for name in columns), style="dim"))
    maximum = weights.max().item()
    for name, row in zip(rows, weights.tolist(), strict=True):
        line = Text(f"    {name} ")
        for weight in row:
            fill = colormap(round(COLOR_STEPS * weight / maximum), dark=True)
            digit = f"{min(int(10 * weight), 9)} " if weight >= 0.1 else "· "
            line.append(digit, style=f"{text_color(fill)} on {fill}")
        console.print(line)


def _next_steps(to: Path, pretrained: bool) -> list[str]:
    untrained = ["  softlook demo                                  train it yourself, in a few minutes"]
    trained = [
        f"  head {to / TRAIN_FILE}",
        "      the training data",
        f"  open {to / 'run' / 'report.html'}",
        "      the report of the run",
    ]
    return [
        "",
        f"Attention figure: {to / FIGURE}",
        "Next:",
        "  softlook translate dates 'Jan 5th, 2021'       a date of your own",
        *(untrained if pretrained else trained),
        "  softlook train translate --data pairs.tsv      train on your own pairs",
    ]
