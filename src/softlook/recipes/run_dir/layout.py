"""The run directory: location, settings, metrics and samples, resuming, and listing of runs."""

import csv
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from torch import nn

from softlook.base.activity import report_activity
from softlook.base.errors import ConfigError
from softlook.recipes.config.resolve import ConfigOverrides, ResolvedConfig, ValueOrigin, unflatten
from softlook.recipes.config.schema import MUTABLE_FIELDS, RunConfig
from softlook.recipes.run_dir.report import write_report
from softlook.recipes.run_dir.report.data import Settings
from softlook.recipes.tasks import TASKS
from softlook.train.checkpoint.run_dir import CONFIG, EVENTS, METADATA, TOKENIZER, RunDir, write_json
from softlook.train.config import MUTABLE_FIELDS as MUTABLE_TRAINING_FIELDS
from softlook.train.events import (
    Callback,
    Evaluated,
    Event,
    Finished,
    Sampled,
    Started,
    StepLogged,
    dispatch,
    read_events,
)
from softlook.train.schedule import RunClock
from softlook.train.trainer import EvaluateFn
from softlook.weights.assets import LABELS_FILE as LABELS_FILE
from softlook.weights.atomic_folder import atomic_write_text
from softlook.weights.checkpoint import CONFIG_FILE
from softlook.weights.hugging_face import CONFIG_FILE as HF_CONFIG_FILE
from softlook.weights.manifest import BEST_FILE, file_entries, read_checksummed, verify_run, with_checksum
from softlook.weights.manifest import SETTINGS_FILE as SETTINGS_FILE
from softlook.weights.schema import read_json

SCORES_FILE = "scores.json"
TRIALS_FILE = "trials.jsonl"
"""The trials of a hyper-parameter search, one per line."""
RUNS = Path("runs")
METRICS_FILE, SAMPLES_FILE = "metrics.csv", "samples.jsonl"
COLUMNS = ("step", "seconds", "loss", "lr", "grad_norm", "tokens_per_second")


def run_dir_path(task: str, overrides: ConfigOverrides[Any]) -> Path:
    """The run directory; with `fresh`, the first free name next to it."""
    path = Path(overrides.get("run_dir") or RUNS / f"{task}-{data_name(tuple(map(Path, overrides.get('data'))))}")
    if not overrides.get("fresh") or not path.exists():
        return path
    others = (path.with_name(f"{path.name}-{number}") for number in count(2))
    return next(other for other in others if not other.exists())


def data_name(data: tuple[Path, ...]) -> str:
    """A name for the data: that of the first file, prefixed with its folder if the file name is generic.

    >>> data_name((Path("corpora/train.en.gz"), Path("corpora/train.de.gz"))), data_name((Path("reviews.csv"),))
    ('corpora-train', 'reviews')
    >>> data_name((Path("corpora/poems/../train.en"),))
    'corpora-train'
    """
    first = data[0].resolve() if ".." in data[0].parts else data[0].absolute()
    stem = first.name.split(".")[0] or "data"
    is_generic = stem.lower() in ("train", "data", "input", "text", "corpus", "all")
    return f"{first.parent.name}-{stem}" if is_generic and first.parent.name else stem


LIMITS = ("training.max_steps", "training.max_minutes")


def load_previous_values(folder: RunDir, overrides: ConfigOverrides[Any]) -> dict[str, Any] | None:
    """The automatic values of an existing run, which stay fixed when it is resumed; None without one.

    If a limit of steps or minutes is given, the automatic limits no longer apply.
    """
    if not folder.exists() or not (folder.path / SETTINGS_FILE).is_file():
        return None
    verify_run(folder.path)
    settings = read_checksummed(folder.path / SETTINGS_FILE)
    values = {
        name: settings["values"][name] for name, origin in settings["origins"].items() if origin == ValueOrigin.AUTO
    }
    if any(name in overrides.values for name in (*LIMITS, "epochs")):
        values = {name: value for name, value in values.items() if name not in LIMITS}
    return values


def write_settings(folder: RunDir, task: str, resolved: ResolvedConfig[Any]) -> None:
    """Write settings.json: every value, its origin, and digests of the files the run starts with."""
    content = {"task": task, "values": resolved.values(), "origins": resolved.origins}
    entries = file_entries(folder.path, (CONFIG, METADATA, TOKENIZER, LABELS_FILE))
    write_json(folder.path / SETTINGS_FILE, with_checksum(content | entries))


def fixed_values(resolved: ResolvedConfig[Any]) -> dict[str, Any]:
    """The values that cannot change when a run is resumed."""
    mutable = MUTABLE_FIELDS | {f"training.{name}" for name in MUTABLE_TRAINING_FIELDS}
    return {name: value for name, value in resolved.values().items() if name not in mutable}


def load_scores(folder: Path) -> dict[str, Any]:
    """The scores of a finished run; empty before."""
    return read_json(folder / SCORES_FILE) if (folder / SCORES_FILE).is_file() else {}


def task_of_run(folder: Path) -> str | None:
    """The task that a run directory was trained for; None if it is something else."""
    return read_json(folder / SETTINGS_FILE).get("task") if (folder / SETTINGS_FILE).is_file() else None


def is_image_model(folder: Path) -> bool:
    """Whether a folder is a run of `softlook train images`, a checkpoint of a ViT, or a ViT of Hugging Face."""
    names = ((SETTINGS_FILE, "task", "images"), (CONFIG_FILE, "model", "ViT"), (HF_CONFIG_FILE, "model_type", "vit"))
    files = ((folder / file, key, value) for file, key, value in names)
    return any(file.is_file() and read_json(file).get(key) == value for file, key, value in files)


def load_run_config(run: Path) -> RunConfig:
    """The config a run was trained with."""
    if not (run / SETTINGS_FILE).is_file():
        raise ConfigError(f"{run} is not a run directory: it has no {SETTINGS_FILE}. `softlook runs` lists the runs.")
    verify_run(run)
    settings = read_checksummed(run / SETTINGS_FILE)
    if settings.get("task") not in TASKS:
        raise ConfigError(
            f"{run / SETTINGS_FILE}: unknown task {settings.get('task')!r:.40}; expected {', '.join(TASKS)}"
        )
    return TASKS[settings["task"]].model_validate(unflatten(settings["values"]))


@dataclass(frozen=True)
class RunSummary:
    """One run in a listing."""

    path: Path
    task: str
    started: str
    step: int
    steps: int
    best: float | None
    """The lowest validation loss."""
    state: str


def list_runs(folder: Path) -> list[RunSummary]:
    """Every run below a folder, newest first."""
    runs = [
        _summarize(path.parent) for path in sorted(folder.glob(f"**/{CONFIG}")) if (path.parent / METADATA).is_file()
    ]
    return sorted(runs, key=lambda run: run.started, reverse=True)


def _summarize(path: Path) -> RunSummary:
    started = str(read_json(path / METADATA).get("started", ""))
    if (path / TRIALS_FILE).is_file():
        return _summarize_search(path, started)
    settings = read_json(path / SETTINGS_FILE) if (path / SETTINGS_FILE).is_file() else {}
    events = read_events(path / EVENTS) if (path / EVENTS).is_file() else []
    best = read_json(path / BEST_FILE).get("loss") if (path / BEST_FILE).is_file() else None
    step = max((event["step"] for event in events), default=0)
    last = next((event for event in reversed(events) if event["event"] in ("finished", "started")), {})
    state = "not started"
    if last:
        state = str(last.get("reason", "")) if last["event"] == "finished" else "running or interrupted"
    steps = settings.get("values", {}).get("training.max_steps") or 0
    return RunSummary(path, str(settings.get("task", "?")), started, step, steps, best, state)


def _summarize_search(path: Path, started: str) -> RunSummary:
    """A hyper-parameter search is listed with its trials as steps."""
    trials = [json.loads(line) for line in (path / TRIALS_FILE).read_text(encoding="utf-8").splitlines()]
    best = next((trial["loss"] for trial in trials if trial["is_best"]), None)
    return RunSummary(path, "tune", started, len(trials), 0, best, "trials; best.toml has the best settings")


class EvaluationCallback:
    """Evaluates the model, samples its outputs in each evaluation, and passes all events on to other callbacks."""

    def __init__(
        self,
        evaluate: EvaluateFn,
        sample: Callable[[nn.Module], list[dict[str, str]]],
        callbacks: Sequence[Callback],
        attention: Callable[[nn.Module], list[dict[str, Any]]] = lambda model: [],
        clock: RunClock | None = None,
    ) -> None:
        self.clock = RunClock() if clock is None else clock
        self.evaluate_fn, self.sample, self.callbacks, self.attention = evaluate, sample, callbacks, attention
        self.sampled = Sampled(0, [])
        self.finished: Finished | None = None

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Validation scores; the samples are kept for the next event."""
        report_activity("evaluating on the validation data")
        scores, began = self.evaluate_fn(model), time.monotonic()
        self.sampled = Sampled(0, self.sample(model), self.attention(model))
        self.clock.sample_seconds = time.monotonic() - began
        return scores

    def __call__(self, event: Event) -> None:
        if isinstance(event, Finished):
            self.finished = event
        samples = [replace(self.sampled, step=event.step)] if isinstance(event, Evaluated) else []
        dispatch(self.callbacks, event, *samples)


class RunWriter:
    """Callback that writes metrics and samples, and the report after every evaluation."""

    def __init__(self, folder: Path, settings: Settings) -> None:
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
            rows = [row for row in rows if _is_complete(row) and int(row.split(",")[0]) <= step]
            _write_lines(metrics, [header, *rows])
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

    def finish(self, scores: Mapping[str, Any]) -> None:
        """Write the final scores and the report."""
        write_json(self.folder / SCORES_FILE, dict(scores))
        self.write_report(scores)


def _is_complete(row: str) -> bool:
    """Whether a row of metrics was written completely."""
    return row.count(",") == len(COLUMNS) - 1 and row.split(",")[0].isdigit()


def _write_lines(path: Path, lines: list[str]) -> None:
    atomic_write_text(path, "".join(f"{line}\n" for line in lines))
