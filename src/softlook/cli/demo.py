"""`softlook demo`: a Transformer learns to read dates, and shows where it looks."""

import logging
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text
from torch import Tensor

from softlook.cli.progress import progress, talk
from softlook.cli.talk import Result
from softlook.lens import map_figure
from softlook.lens.colour import STEPS, ramp, readable
from softlook.recipes.dates import LANGUAGES, unseen_dates, unseen_forms
from softlook.recipes.demo import HELD_OUT, SHOWN, TRAIN, Marks, Reader, alignment, learn, marks, shipped

log = logging.getLogger("softlook.cli")
FIGURE = "alignment.svg"
EXAMPLES = (SHOWN, "3. März 2022", "2022年3月3日木曜日", "četvrtak, 3. ožujka 2022.", "четвер, 3 березня 2022 р.")


def demo(text: str | None = None, /, *, to: Path = Path("demo"), trained: bool = False, steps: int = 720) -> Result:
    """Learn to read dates in many languages, in a few minutes; then show where the model looks.

    Parameters
    ----------
    text
        A date of your own, to be read at the end.
    to
        Folder for the data, the run and the figure. The same command again goes on where it was stopped.
    trained
        Do not train: take the model that comes with softlook.
    steps
        Updates of the weights.
    """
    learns = "has learned" if trained else "learns"
    log.info(f"A Transformer {learns} to read dates in {len(LANGUAGES)} languages: {SHOWN!r} is 2022-03-03.")
    if trained:
        to.mkdir(parents=True, exist_ok=True)
        reader = shipped()
    else:
        with progress() as spoken:
            reader = learn(to, [spoken], steps=steps)
    return _shown(reader, text or SHOWN, to, trained)


def _shown(reader: Reader, text: str, to: Path, trained: bool) -> Result:
    voice = talk()
    console = Console(stderr=True, quiet=True) if voice is None else voice.console
    dates, forms = marks(reader, unseen_dates(HELD_OUT, 2)), marks(reader, unseen_forms(HELD_OUT // 2, 3))
    console.print(_table(dates, forms))
    for date, read in zip(EXAMPLES, reader.read(EXAMPLES), strict=True):
        log.info(f"    {read}   {date}")
    answer, weights = alignment(reader, text)
    log.info(f"\nWhere it looks when it reads {text!r} as {answer}, in tenths, a row for each character it says:")
    _map(console, answer, text, weights)
    figure = map_figure(weights, queries=list(answer), keys=list(text), title=f"{text} → {answer}")
    (to / FIGURE).write_text(figure, encoding="utf-8")
    for line in _next(to, trained):
        log.info(line)
    scores = {"unseen dates": dates.share, "unseen ways of writing": forms.share}
    return Result(to / FIGURE, {"read": answer, "exact": scores})


def _table(dates: Marks, forms: Marks) -> Table:
    table = Table("never seen before", "read right", "of", "", box=None, header_style="dim")
    for name, came in (("dates", dates), ("dates in ways of writing", forms)):
        table.add_row(name, f"{came.right:,}", f"{came.asked:,}", f"{came.share:.1%}")
    hardest = sorted(dates.by_language.items(), key=lambda one: one[1])[:3]
    table.add_row("the hardest languages", ", ".join(f"{name} {share:.0%}" for name, share in hardest))
    return table


def _map(console: Console, rows: Sequence[str], columns: Sequence[str], weights: Tensor) -> None:
    """A map in coloured squares. Where there is no colour, a digit says how many tenths."""
    console.print(Text("      " + "".join(f"{name} " for name in columns), style="dim"))
    most = weights.max().item()
    for name, row in zip(rows, weights.tolist(), strict=True):
        line = Text(f"    {name} ")
        for weight in row:
            fill = ramp(round(STEPS * weight / most), dark=True)
            line.append(f"{min(int(10 * weight), 9)} " if weight >= 0.1 else "· ", style=f"{readable(fill)} on {fill}")
        console.print(line)


def _next(to: Path, trained: bool) -> list[str]:
    learn = ["  softlook demo                                  see it learn, in a few minutes"]
    learned = [
        f"  head {to / TRAIN}",
        "      what it learned from",
        f"  open {to / 'run' / 'report.html'}",
        "      how that went",
    ]
    return [
        "",
        f"The same as a picture: {to / FIGURE}",
        "Next:",
        "  softlook translate dates '25 décembre 1999'    a date of your own",
        *(learn if trained else learned),
        "  softlook train translate --data pairs.tsv      the same with pairs of your own",
    ]
