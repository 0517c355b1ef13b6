"""Training runs on tables.

Training is bit-identical to that of the estimators of `softlook.tabular`; run directory, checkpoints, events and report
are those of every run.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from softlook.base.device import choose_device
from softlook.recipes.config.resolve import (
    ConfigOverrides,
    ResolvedConfig,
    explicit_overrides,
    resolve_config,
    unflatten,
)
from softlook.recipes.config.tabular_schema import TabularConfig
from softlook.recipes.loggers.registry import LoggerGroup, open_loggers, select_loggers
from softlook.recipes.run_dir.layout import SCORES_FILE, load_previous_run, run_dir_path, write_settings
from softlook.recipes.run_dir.report import IMPORTANCES, write_report
from softlook.recipes.run_dir.writers import RunWriter
from softlook.recipes.tabular.checkpointing import CheckpointedTraining, TrainingStopped, describe_training
from softlook.recipes.tabular.data import TableData, load_table, locate_data_errors
from softlook.recipes.tabular.dry_run import TableRunEstimate, estimate_run
from softlook.recipes.tabular.estimator import add_auto_sizes, build_estimator, fixed_config, resolve_table_config
from softlook.recipes.tabular.report import render_columns
from softlook.recipes.tabular.scores import compute_scores, to_test_rows
from softlook.tabular.baselines import MAX_ROWS
from softlook.tabular.estimator import TableEstimator
from softlook.tabular.formatting import plural
from softlook.tabular.preprocessing.preprocessor import TablePreprocessor
from softlook.tabular.preprocessing.rows import TableTensors, sample_rows
from softlook.tabular.training.runtime import Epoch, TimeBudget
from softlook.tabular.training.trainer import TableTrainer
from softlook.train.checkpoint.run_dir import RunDir, write_json
from softlook.train.events import Callback, Event, EventLog, Finished, Saved
from softlook.weights.schema import read_json

log = logging.getLogger("softlook.recipes")


@dataclass(frozen=True)
class TableTrainResult:
    """The result of a run."""

    run_dir: Path
    estimator: TableEstimator | None
    """None if the run was stopped."""
    finished: Finished
    scores: dict[str, Any]
    resolved: ResolvedConfig[TabularConfig]


def train_table(
    config: TabularConfig | ConfigOverrides[TabularConfig], callbacks: Sequence[Callback] = ()
) -> TableTrainResult:
    """Train a model that predicts a column: `softlook train table --data people.csv --target income`.

    >>> from softlook.recipes.config.tabular_schema import TabularConfig, TabularModelConfig, TabularTrainingConfig
    >>> rows = "".join(f"{n % 7},{'ab'[n % 2]},{'yes' if n % 2 else 'no'}\\n" for n in range(80))
    >>> _ = Path("people.csv").write_text(f"age,city,buys\\n{rows}")
    >>> small, short = TabularModelConfig(dim=8, depth=1, heads=2), TabularTrainingConfig(epochs=2)
    >>> config = TabularConfig(data=(Path("people.csv"),), target=("buys",), model=small, training=short)
    >>> sorted(train_table(config.model_copy(update={"no_baseline": True})).scores)
    ['accuracy', 'auc', 'importances', 'log_loss']
    """
    overrides = explicit_overrides(config) if isinstance(config, TabularConfig) else config
    config = resolve_config(overrides, {}).config
    choose_device(config.training.device)
    loggers = select_loggers(config.loggers)
    data = load_data(config)
    folder = RunDir(run_dir_path("table", overrides))
    with folder.lock(), locate_data_errors(config), ExitStack() as stack:
        resolved = prepare_run(overrides, data, folder)
        return run_training(TableRun(folder, resolved, data, loggers, stack), callbacks)


def dry_run(overrides: ConfigOverrides[TabularConfig]) -> TableRunEstimate:
    """Resolve the config and estimate the run, without starting it."""
    config = resolve_config(overrides, {}).config
    choose_device(config.training.device)
    with locate_data_errors(config):
        estimate = estimate_run(overrides, load_data(config))
    log.info("\n".join((*estimate.description, *estimate.resolved.lines())))
    return estimate


def load_data(config: TabularConfig) -> TableData:
    """Read the data and log what was found."""
    data = load_table(config)
    for line in data.description:
        log.info(line)
    rows, columns = data.shape
    log.info(f"{plural(rows, 'row')}, {plural(columns, 'column')}.")
    return data


def prepare_run(
    overrides: ConfigOverrides[TabularConfig], data: TableData, folder: RunDir
) -> ResolvedConfig[TabularConfig]:
    """Resolve the config, or load that of the run to resume."""
    before = load_previous_run(folder, overrides)
    resolved = resolve_table_config(overrides, data, {} if before is None else before.values)
    build_estimator(resolved.config, data)  # raises errors before anything is written
    if before is None:
        log.info("\n".join(resolved.lines()))
    resumes = folder.exists()
    if resumes:
        folder.open(run_config(resolved), data.digest)
        write_settings(folder, "table", resolved)
    log.info(f"{'Resuming' if resumes else 'Starting'} {folder.path}")
    return resolved


def run_training(run: "TableRun", callbacks: Sequence[Callback]) -> TableTrainResult:
    """Train, then compute the scores."""
    folder, resolved, data = run.folder, run.resolved, run.data
    estimator = build_estimator(resolved.config, data)
    training = run.training = CheckpointedTraining(folder, estimator, resolved.config.training, run.emit)
    run.callbacks += callbacks
    try:
        estimator._fit(*data.train, None, data.valid, run)
    except TrainingStopped:
        assert training.finished is not None
        return TableTrainResult(folder.path, None, training.finished, _previous_scores(folder.path), resolved)
    assert training.finished is not None and run.trainer is not None
    if (signal := training.stop.received) is not None:  # during the last epoch
        finished = replace(training.finished, complete=False, signal=signal)
        return TableTrainResult(folder.path, None, finished, _previous_scores(folder.path), resolved)
    try:
        scores = compute_scores(
            estimator,
            run.trainer,
            data,
            run.test,
            config=resolved.config,
            previous=_previous_scores(folder.path),
            seconds=training.finished.seconds,
        )
    except KeyboardInterrupt:
        log.info("The model is trained and saved. Run the same command again to compute its scores.")
        raise
    write_json(folder.path / SCORES_FILE, scores)
    run.finish(scores)
    return TableTrainResult(folder.path, estimator, training.finished, scores, resolved)


class TableRun:
    """The `train_loop` of a run: creates the run directory once the model is built, then trains."""

    def __init__(
        self,
        folder: RunDir,
        resolved: ResolvedConfig[TabularConfig],
        data: TableData,
        loggers: Sequence[str],
        stack: ExitStack,
    ) -> None:
        self.folder, self.resolved, self.data, self.logger_names, self.stack = folder, resolved, data, loggers, stack
        self.callbacks: list[Callback] = []
        self.training: CheckpointedTraining | None = None
        self.trainer: TableTrainer | None = None
        self.writer: TableRunWriter | None = None
        self.loggers = LoggerGroup([])
        self.test: TableTensors | None = None

    def __call__(self, trainer: TableTrainer, budget: TimeBudget) -> list[Epoch]:
        self.trainer, training = trainer, self.training
        assert training is not None
        estimator = training.estimator
        sized = add_auto_sizes(self.resolved, type(estimator), trainer.hparams)
        self.test = to_test_rows(estimator, self.data)  # before hours of training, in case something is wrong
        self.writer = TableRunWriter(self.folder.path, sized.rows(), estimator.preprocessor_)
        if not self.folder.exists():
            self.folder.open(run_config(self.resolved), self.data.digest)
            write_settings(self.folder, "table", sized)
            for line in describe_training(trainer, estimator, self.resolved.config.training):
                log.info(line)
        settings = {name: value for name, value, _ in self.resolved.rows()}
        self.loggers = self.stack.enter_context(open_loggers(self.logger_names, self.folder.path, settings))
        self.callbacks[:0] = [EventLog(self.folder.events), self.writer, self.loggers]
        history = training(trainer, budget)
        if not isinstance(trainer.train_rows, TableTensors):  # rows on disk are deleted after training
            generator = torch.Generator().manual_seed(self.resolved.config.training.seed)
            trainer.train_rows = sample_rows(trainer.train_rows, MAX_ROWS, generator)
        return history

    def emit(self, event: Event) -> None:
        """Send an event to all callbacks."""
        for callback in self.callbacks:
            callback(event)

    def finish(self, scores: dict[str, Any]) -> None:
        """Write the final report."""
        assert self.writer is not None
        self.writer.write_report(scores)
        self.loggers.scores = scores


def run_config(resolved: ResolvedConfig[TabularConfig]) -> dict[str, Any]:
    """The values that must not change when a run is resumed."""
    return {"task": "table", **unflatten(fixed_config(resolved))}


class TableRunWriter(RunWriter):
    """Writes the report, with all columns, at every checkpoint: evaluations may come many times a second."""

    def __init__(self, folder: Path, settings: Sequence[tuple[str, str, str]], preprocessor: TablePreprocessor) -> None:
        super().__init__(folder, settings)
        self.preprocessor = preprocessor

    def write_report(self, scores: Mapping[str, Any]) -> None:
        columns = render_columns(self.preprocessor.describe(), self.preprocessor.encoder.names, scores.get(IMPORTANCES))
        write_report(self.folder, self.settings, scores, extra=columns)

    def __call__(self, event: Event) -> None:
        super().__call__(event)
        if isinstance(event, Saved):
            self.write_report(self.scores)


def _previous_scores(folder: Path) -> dict[str, Any]:
    return read_json(folder / SCORES_FILE) if (folder / SCORES_FILE).is_file() else {}
