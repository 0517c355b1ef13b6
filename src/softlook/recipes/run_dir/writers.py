"""Run directory writers: metrics.csv, samples.jsonl and the report."""

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from softlook.recipes.run_dir.report import write_report
from softlook.train.events import Callback, Evaluated, Event, Finished, Sampled, Started, StepLogged
from softlook.train.trainer import EvaluateFn
from softlook.weights.atomic_folder import atomic_write_text

METRICS_FILE, SAMPLES_FILE = "metrics.csv", "samples.jsonl"
COLUMNS = ("step", "seconds", "loss", "lr", "grad_norm", "tokens_per_second")


class EvaluationCallback:
    """Evaluates the model, samples its outputs in each evaluation, and passes all events on to other callbacks."""

    def __init__(
        self,
        evaluate: EvaluateFn,
        sample: Callable[[nn.Module], list[dict[str, str]]],
        callbacks: Sequence[Callback],
    ) -> None:
        self.evaluate_fn, self.sample, self.callbacks = evaluate, sample, callbacks
        self.samples: list[dict[str, str]] = []
        self.finished: Finished | None = None

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Validation scores; the samples are kept for the next event."""
        scores = self.evaluate_fn(model)
        self.samples = self.sample(model)
        return scores

    def __call__(self, event: Event) -> None:
        self._emit(event)
        if isinstance(event, Evaluated):
            self._emit(Sampled(event.step, self.samples))
        if isinstance(event, Finished):
            self.finished = event

    def _emit(self, event: Event) -> None:
        for callback in self.callbacks:
            callback(event)


class RunWriter:
    """Callback that writes metrics and samples, and the report after every evaluation."""

    def __init__(self, folder: Path, settings: Sequence[tuple[str, str, str]]) -> None:
        self.folder, self.settings, self.scores = folder, settings, dict[str, Any]()

    def __call__(self, event: Event) -> None:
        if isinstance(event, Started):
            self._drop_rows_after(event.step)
        elif isinstance(event, StepLogged):
            self._append_metrics([getattr(event, name) for name in COLUMNS])
        elif isinstance(event, Evaluated) and event.is_best:
            self.scores = dict(event.scores)
        elif isinstance(event, Sampled):
            with (self.folder / SAMPLES_FILE).open("a", encoding="utf-8") as file:
                file.write(json.dumps({"step": event.step, "samples": event.samples}, ensure_ascii=False) + "\n")
        if isinstance(event, Sampled | Finished):
            self.write_report(self.scores)

    def _drop_rows_after(self, step: int) -> None:
        """Drop what a killed process logged after its last checkpoint: those steps run and are logged again."""
        metrics, samples = self.folder / METRICS_FILE, self.folder / SAMPLES_FILE
        if metrics.exists():
            header, *rows = metrics.read_text(encoding="utf-8").splitlines() or [",".join(COLUMNS)]
            _write_lines(
                metrics, [header, *(row for row in rows if _is_complete(row) and int(row.split(",")[0]) <= step)]
            )
        if samples.exists():
            lines = samples.read_text(encoding="utf-8").splitlines()
            _write_lines(samples, [line for line in lines if line.endswith("}") and json.loads(line)["step"] <= step])

    def _append_metrics(self, values: list[float]) -> None:
        path = self.folder / METRICS_FILE
        is_new = not path.exists()
        with path.open("a", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            if is_new:
                writer.writerow(COLUMNS)
            writer.writerow(values)

    def write_report(self, scores: Mapping[str, Any]) -> None:
        """Write the report and the loss plot."""
        write_report(self.folder, self.settings, scores)


def _is_complete(row: str) -> bool:
    """Whether a row of metrics was written completely."""
    return row.count(",") == len(COLUMNS) - 1 and row.split(",")[0].isdigit()


def _write_lines(path: Path, lines: list[str]) -> None:
    atomic_write_text(path, "".join(f"{line}\n" for line in lines))
