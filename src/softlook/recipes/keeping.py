"""What a run writes beside its checkpoints: numbers, samples, a plot and a page about it all."""

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from softlook.recipes.report import write_report
from softlook.train.events import Evaluated, Event, Finished, Listener, Sampled, Started, Trained
from softlook.train.run import Evaluate

METRICS, SAMPLES = "metrics.csv", "samples.jsonl"
COLUMNS = ("step", "seconds", "loss", "lr", "gradient", "tokens_per_second")


class Watched:
    """Looks at held-out data, and has the model say something at each look. It tells everybody."""

    def __init__(
        self, look: Evaluate, sample: Callable[[nn.Module], list[dict[str, str]]], listeners: Sequence[Listener]
    ) -> None:
        self.look, self.sample, self.listeners = look, sample, listeners
        self.samples: list[dict[str, str]] = []
        self.finished: Finished | None = None

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Scores of held-out data; what was said is kept until somebody asks."""
        scores = self.look(model)
        self.samples = self.sample(model)
        return scores

    def __call__(self, event: Event) -> None:
        self._pass_on(event)
        if isinstance(event, Evaluated):
            self._pass_on(Sampled(event.step, self.samples))
        if isinstance(event, Finished):
            self.finished = event

    def _pass_on(self, event: Event) -> None:
        for listener in self.listeners:
            listener(event)


class Keeper:
    """Writes numbers as a table and samples as lines, and draws the page anew at every look."""

    def __init__(self, folder: Path, settings: Sequence[tuple[str, str, str]]) -> None:
        self.folder, self.settings, self.scores = folder, settings, dict[str, Any]()

    def __call__(self, event: Event) -> None:
        if isinstance(event, Started):
            self._drop_rows_after(event.step)
        elif isinstance(event, Trained):
            self._row([getattr(event, name) for name in COLUMNS])
        elif isinstance(event, Evaluated) and event.is_best:
            self.scores = dict(event.scores)
        elif isinstance(event, Sampled):
            with (self.folder / SAMPLES).open("a", encoding="utf-8") as file:
                file.write(json.dumps({"step": event.step, "samples": event.samples}, ensure_ascii=False) + "\n")
        if isinstance(event, Sampled | Finished):
            self.draw(self.scores)

    def _drop_rows_after(self, step: int) -> None:
        """Forget what a killed process logged after its last checkpoint: those steps are made and logged again."""
        metrics, samples = self.folder / METRICS, self.folder / SAMPLES
        if metrics.exists():
            header, *rows = metrics.read_text(encoding="utf-8").splitlines() or [",".join(COLUMNS)]
            _rewrite(metrics, [header, *(row for row in rows if _is_whole(row) and int(row.split(",")[0]) <= step)])
        if samples.exists():
            lines = samples.read_text(encoding="utf-8").splitlines()
            _rewrite(samples, [line for line in lines if line.endswith("}") and json.loads(line)["step"] <= step])

    def _row(self, values: list[float]) -> None:
        path = self.folder / METRICS
        is_new = not path.exists()
        with path.open("a", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            if is_new:
                writer.writerow(COLUMNS)
            writer.writerow(values)

    def draw(self, scores: Mapping[str, Any]) -> None:
        """The page and the plot, as things stand."""
        write_report(self.folder, self.settings, scores)


def _is_whole(row: str) -> bool:
    """Whether a row of metrics was written to its end."""
    return row.count(",") == len(COLUMNS) - 1 and row.split(",")[0].isdigit()


def _rewrite(path: Path, lines: list[str]) -> None:
    """Replace a file as a whole, so that a kill at any moment leaves the old one or the new one."""
    partial = path.with_suffix(f"{path.suffix}.partial")
    partial.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    partial.replace(path)
