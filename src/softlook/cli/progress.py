"""How a run gets on, said while it does: a bar on a terminal, a line every few seconds elsewhere."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from softlook.cli.talk import Talk, laid_out
from softlook.recipes.report import score_name, shown
from softlook.recipes.sizing import spoken
from softlook.train.events import Evaluated, Event, Finished, Halved, Sampled, Skipped, Started, Trained

EVERY = 5.0
"""Seconds between two lines, where there is no terminal to draw a bar on."""
LOOKS = 1.0
"""Seconds between two lines about held-out data, of a run that looks as often as it likes."""
LONGEST = 160
"""Characters of a sample."""
BAR = 24
"""Characters of a bar."""


def talk() -> Talk | None:
    """The voice of the command under way."""
    return next((handler for handler in logging.getLogger("softlook").handlers if isinstance(handler, Talk)), None)


@contextmanager
def progress(unit: str = "tokens") -> Iterator["Spoken"]:
    """Whoever tells of a run while it goes on; `unit` is what is learned from."""
    voice = talk()
    console = Console(stderr=True, quiet=True) if voice is None else voice.console
    quiet = voice is None or voice.level > logging.INFO
    if quiet or not console.is_terminal:
        yield Spoken(console, unit, quiet=quiet)
        return
    columns = (BarColumn(BAR), TextColumn("{task.fields[words]}"))
    with Progress(*columns, console=console, transient=True) as bar:
        yield Spoken(console, unit, bar=bar)


class Spoken:
    """Tells what happens, in a line or on the bar."""

    def __init__(
        self, console: Console, unit: str = "tokens", *, quiet: bool = False, bar: Progress | None = None
    ) -> None:
        self.console, self.unit, self.quiet, self.bar = console, unit, quiet, bar
        self.task = None if bar is None else bar.add_task("", total=None, words="")
        self.steps, self.said_at, self.began, self.held = 0, 0.0, (0, 0.0), ""
        self.looked_at, self.limit = 0.0, None

    def __call__(self, event: Event) -> None:
        if not self.quiet:
            self._tell(event)

    def _tell(self, event: Event) -> None:
        if isinstance(event, Started):
            self._started(event)
        elif isinstance(event, Trained):
            self._trained(event)
        elif isinstance(event, Evaluated):
            self.held = ", ".join(f"{score_name(name)} {shown(value, name)}" for name, value in event.scores.items())
            best = "  (the best so far)" if event.is_best else ""
            if self.steps or time.monotonic() - self.looked_at >= LOOKS:
                self.looked_at = time.monotonic()
                self._say(f"step {event.step:,}: held-out {self.held}{best}")
        elif isinstance(event, Sampled):
            for sample in event.samples:
                self._say("\n".join(f"    {name:8} {_shown(text)}" for name, text in sample.items()), "dim")
        elif isinstance(event, Skipped):
            self._say(f"step {event.step:,} gave no numbers (loss {event.loss}) and was left out")
        elif isinstance(event, Halved):
            self._say(f"The memory was full: batches are worked through in {event.parts} pieces from now on.")
        elif isinstance(event, Finished):
            self._say(f"Step {event.step:,}: {event.reason}, after {spoken(event.seconds)}.")
            self._over()

    def _started(self, event: Started) -> None:
        self.steps, self.began, self.limit = event.steps, (event.step, time.monotonic()), event.limit
        of = f" of {event.steps:,}" if event.steps else ""  # of a run that ends when it is good enough nobody knows
        going_on = f" Going on after step {event.step:,}{of}." if event.step else ""
        self._say(f"{event.parameters:,} weights, on {event.device} in {event.precision}.{going_on}")
        if self.bar is not None and self.task is not None:
            self.bar.update(self.task, total=event.steps or event.limit, completed=event.step if event.steps else 0)

    def _trained(self, event: Trained) -> None:
        (first, began), steps = self.began, self.steps
        words = f"loss {event.loss:.3f}  {event.tokens_per_second:,.0f} {self.unit}/s"
        if steps:
            pace = (time.monotonic() - began) / max(event.step - first, 1)
            words += f"  {spoken(pace * (steps - event.step))} left"
        elif self.limit is not None:
            words += f"  {spoken(max(self.limit - event.seconds, 0))} left"
        if self.bar is not None and self.task is not None:
            place = f"{event.step:,}/{steps:,}" if steps else f"step {event.step:,}"
            words, held = f"{place}  {words}", f"  held-out {self.held}" if self.held else ""
            words += held if BAR + len(" " + words + held) <= self.console.width else ""  # it was said on its own line
            self.bar.update(self.task, completed=event.step if steps else event.seconds, words=words)
        elif time.monotonic() - self.said_at >= EVERY:
            self.said_at = time.monotonic()
            of = f" of {steps:,} ({event.step / steps:.0%})" if steps else ""
            self._say(f"step {event.step:,}{of}  {words}")

    def _over(self) -> None:
        """What comes now takes its time, and nobody knows how much."""
        if self.bar is not None and self.task is not None:
            self.bar.remove_task(self.task)
            self.task = self.bar.add_task("", total=None, words="")

    def _say(self, words: str, style: str = "") -> None:
        self.console.print(Text(laid_out(words, self.console), style=style))


def _shown(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
