"""Training runs on tables.

An attention model is trained, then an ensemble is fitted, both bit-identical to those of the estimators of
`softlook.tabular`. Run directory, checkpoints, events and report are those of every run.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from softlook.base.device import choose_device
from softlook.recipes.config.resolve import ConfigLike, ConfigOverrides, ResolvedConfig, as_overrides, resolve_config
from softlook.recipes.config.tabular_schema import TabularConfig
from softlook.recipes.loggers.async_logger import open_loggers, select_loggers
from softlook.recipes.run_dir.layout import RunWriter, load_previous_values, load_scores, run_dir_path, write_settings
from softlook.recipes.run_dir.report import write_data_summary, write_report
from softlook.recipes.run_dir.report.data import IMPORTANCES, Settings
from softlook.recipes.run_dir.run_result import RunResult
from softlook.recipes.tabular.checkpointing import CheckpointedTraining, TrainingStopped, describe_training
from softlook.recipes.tabular.data import TableData, load_table, locate_data_errors
from softlook.recipes.tabular.dry_run import TableRunEstimate, estimate_run
from softlook.recipes.tabular.ensemble import (
    LEADERBOARD,
    RunEnsemble,
    attention_seconds,
    find_or_fit_ensemble,
    render_leaderboard,
)
from softlook.recipes.tabular.estimator import add_auto_sizes, build_estimator, fixed_config, resolve_table_config
from softlook.recipes.tabular.scores import compute_scores, render_columns, to_test_rows
from softlook.tabular.baselines import MAX_ROWS
from softlook.tabular.estimator import TableEstimator
from softlook.tabular.formatting import plural
from softlook.tabular.preprocessing.preprocessor import TablePreprocessor
from softlook.tabular.preprocessing.rows import TableTensors, sample_rows
from softlook.tabular.training.runtime import Epoch, TimeBudget
from softlook.tabular.training.trainer import TableTrainer
from softlook.train.checkpoint.run_dir import RunDir
from softlook.train.events import Callback, Event, EventLog, Finished, Saved
from softlook.train.progress import progress_bar

log = logging.getLogger("softlook.recipes")


@dataclass(frozen=True, repr=False)
class TableTrainResult(RunResult):
    """The result of a run."""

    run_dir: Path
    estimator: TableEstimator | None
    """The ensemble, if there is one; None if the run was stopped."""
    finished: Finished
    scores: dict[str, Any]
    resolved: ResolvedConfig[TabularConfig]


def train_table(
    config: ConfigLike[TabularConfig], callbacks: Sequence[Callback] = (), *, progress: bool = True
) -> TableTrainResult:
    """Train a model that predicts a column: `softlook train table --data people.csv --target income`.

    >>> from softlook.recipes.config.tabular_schema import TabularConfig, TabularModelConfig, TabularTrainingConfig
    >>> rows = "".join(f"{n % 7},{'ab'[n % 2]},{'yes' if n % 2 else 'no'}\\n" for n in range(80))
    >>> _ = Path("people.csv").write_text(f"age,city,buys\\n{rows}")
    >>> small, short = TabularModelConfig(dim=8, depth=1, heads=2), TabularTrainingConfig(epochs=2)
    >>> config = TabularConfig(data=(Path("people.csv"),), target=("buys",), model=small, training=short)
    >>> quick = {"no_baseline": True, "ensemble": "single"}
    >>> sorted(train_table(config.model_copy(update=quick)).scores)
    ['accuracy', 'auc', 'importances', 'log_loss']
    """
    overrides = as_overrides(config)
    config = resolve_config(overrides, {}).config
    choose_device(config.training.device)
    select_loggers(config.loggers)
    data = load_data(config)
    folder = RunDir(run_dir_path("table", overrides))
    with folder.lock(), locate_data_errors(config), ExitStack() as stack:
        resolved, shown = prepare_run(overrides, data, folder), stack.enter_context(progress_bar(progress))
        return run_training(TableRun(folder, resolved, data, [*callbacks, *shown], stack))


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
    before = load_previous_values(folder, overrides)
    resolved = resolve_table_config(overrides, data, {} if before is None else before)
    build_estimator(resolved.config, data)  # raises errors before anything is written
    if before is None:
        log.info("\n".join(resolved.lines()))
    resumes = folder.exists()
    if resumes:
        folder.open(fixed_config(resolved), data.digest)
        write_settings(folder, "table", resolved)
    log.info(f"{'Resuming' if resumes else 'Starting'} {folder.path}")
    return resolved


def run_training(run: "TableRun") -> TableTrainResult:
    """Train, fit the ensemble, then compute the scores."""
    path, data, resolved, previous = run.folder.path, run.data, run.resolved, load_scores(run.folder.path)
    with suppress(TrainingStopped):
        run.estimator._fit(*data.train, None, data.valid, run)
    if (signal := run.stop.received) is not None:  # it may also have come during the last epoch
        finished = replace(run.finished, complete=False, signal=signal)
        return TableTrainResult(path, None, finished, previous, resolved)
    ensemble = run.fit_ensemble()
    try:
        scores = compute_scores(
            run.estimator,
            run.trainer,
            data,
            run.test,
            ensemble=ensemble,
            config=resolved.config,
            previous=previous,
            seconds=run.finished.seconds,
        )
    except KeyboardInterrupt:
        log.info("The model is trained and saved. Run the same command again to compute its scores.")
        raise
    run.writer.finish(scores)
    run.loggers.scores = scores
    estimator = run.estimator if ensemble is None else ensemble.estimator
    return TableTrainResult(path, estimator, run.finished, scores, resolved)


class TableRun(CheckpointedTraining):
    """The `train_loop` of a run: creates the run directory once the model is built, then trains."""

    def __init__(
        self,
        folder: RunDir,
        resolved: ResolvedConfig[TabularConfig],
        data: TableData,
        callbacks: Sequence[Callback],
        stack: ExitStack,
    ) -> None:
        super().__init__(folder, build_estimator(resolved.config, data), resolved.config.training, callbacks)
        self.resolved, self.data, self.stack = resolved, data, stack
        self.estimator.time_limit = attention_seconds(resolved.config, data)

    def fit_ensemble(self) -> RunEnsemble | None:
        """The ensemble; None if there is none, or if a callback stopped the run."""
        if self.callback_request is not None:
            return None
        return find_or_fit_ensemble(self.folder.path, self.resolved.config, self.data)

    def __call__(self, trainer: TableTrainer, budget: TimeBudget) -> list[Epoch]:
        estimator, config = self.estimator, self.resolved.config
        sized = add_auto_sizes(self.resolved, type(estimator), trainer.hparams)
        self.test = to_test_rows(estimator, self.data)  # before hours of training, in case something is wrong
        self.writer = TableRunWriter(self.folder.path, sized.rows(), estimator.preprocessor_)
        if not self.folder.exists():
            self.folder.open(fixed_config(self.resolved), self.data.digest)
            write_settings(self.folder, "table", sized)
            for line in describe_training(trainer, estimator, config.training):
                log.info(line)
        sizes = {"training": trainer.n_rows, "validation": len(trainer.validation or ()), "test": len(self.test or ())}
        write_data_summary(self.folder.path, {name: {"rows": size} for name, size in sizes.items() if size})
        loggers = open_loggers(select_loggers(config.loggers), self.folder.path, self.resolved.rows())
        self.loggers = self.stack.enter_context(loggers)
        self.callbacks[:0] = [EventLog(self.folder.events), self.writer, self.loggers]
        history = super().__call__(trainer, budget)
        if not isinstance(trainer.train_rows, TableTensors):  # rows on disk are deleted after training
            generator = torch.Generator().manual_seed(config.training.seed)
            trainer.train_rows = sample_rows(trainer.train_rows, MAX_ROWS, generator)
        return history


class TableRunWriter(RunWriter):
    """Writes the report, with all columns, at every checkpoint: evaluations may come many times a second."""

    def __init__(self, folder: Path, settings: Settings, preprocessor: TablePreprocessor) -> None:
        super().__init__(folder, settings)
        self.preprocessor = preprocessor

    def write_report(self, scores: Mapping[str, Any]) -> None:
        columns = render_columns(self.preprocessor.describe(), self.preprocessor.encoder.names, scores.get(IMPORTANCES))
        leaderboard = render_leaderboard(scores.get(LEADERBOARD, ()))
        write_report(self.folder, self.settings, scores, extra=f"{leaderboard}{columns}")

    def __call__(self, event: Event) -> None:
        super().__call__(event)
        if isinstance(event, Saved):
            self.write_report(self.scores)
