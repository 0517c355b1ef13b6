"""Dry run of a table run: columns, sizes, time and memory."""

from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pyarrow as pa
from torch import nn
from torch.optim import Optimizer

from softlook.recipes.config.autosize import format_duration
from softlook.recipes.config.resolve import ConfigOverrides, ResolvedConfig
from softlook.recipes.config.tabular_schema import TabularConfig
from softlook.recipes.profiling.step_benchmark import BENCHMARK_LR, MemoryEstimate, Step, profile_step, size_in_memory
from softlook.recipes.run_dir.layout import load_previous_values, run_dir_path
from softlook.recipes.tabular.checkpointing import describe_training, model_size
from softlook.recipes.tabular.data import TableData
from softlook.recipes.tabular.ensemble import attention_seconds, no_ensemble_reason
from softlook.recipes.tabular.estimator import add_auto_sizes, build_estimator, resolve_table_config
from softlook.tabular.training.retrieval import retrieval_seconds
from softlook.tabular.training.row_store import DiskRows
from softlook.tabular.training.runtime import Epoch, TimeBudget
from softlook.tabular.training.train_step import TableTrainStep
from softlook.tabular.training.trainer import TableTrainer, prediction_seconds_per_row
from softlook.train.checkpoint.run_dir import RunDir
from softlook.train.rng import make_generator

ENSEMBLE_TIME = "An ensemble is fitted after that: several times as long, or what is left of a time limit."


@dataclass(frozen=True)
class DurationEstimate:
    """Measured seconds of each part of a run."""

    step: float
    evaluation: float
    """0 without validation rows."""
    retrieval: float
    """At the end."""
    steps_per_epoch: int
    epochs: int | None
    """Maximum; None if early stopping alone decides."""
    evaluations: int
    """In these epochs; in one epoch if early stopping decides."""
    limit: float | None

    @property
    def steps(self) -> int | None:
        """Maximum number of steps."""
        return None if self.epochs is None else self.epochs * self.steps_per_epoch

    @property
    def seconds(self) -> float | None:
        """Maximum duration; None if it is unknown."""
        if self.steps is None:
            return self.limit
        total = self.steps * self.step + self.evaluations * self.evaluation + self.retrieval
        return total if self.limit is None else min(total, self.limit)

    def describe(self) -> str:
        evaluations = f"evaluations of about {self.evaluation:.2g} s"
        if self.steps is None or self.seconds is None:
            steps = f"Steps of about {self.step:.2g} s, {self.steps_per_epoch:,} per epoch"
            limit = "" if self.limit is None else f", within {format_duration(self.limit)}"
            return f"{steps}{f' and {evaluations}' if self.evaluation else ''}, until early stopping{limit}."
        evaluations = f" and {self.evaluations:,} {evaluations}" if self.evaluation else ""
        return f"{self.steps:,} steps of about {self.step:.2g} s{evaluations}: at most {format_duration(self.seconds)}."


@dataclass(frozen=True)
class TableRunEstimate:
    """What is known of a run before it starts."""

    resolved: ResolvedConfig[TabularConfig]
    description: list[str]
    columns: list[str]
    device: str
    rows: tuple[int, int]
    """Training and validation rows."""
    size: dict[str, int]
    """Depth, width, heads and ensemble members."""
    parameters: int
    batch_size: int
    duration: DurationEstimate
    memory: MemoryEstimate

    def measurements(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "columns": self.columns,
            "device": self.device,
            "rows": self.rows[0],
            "validation_rows": self.rows[1],
            "size": {**self.size, "parameters": self.parameters},
            "batch_size": self.batch_size,
            "steps": self.duration.steps,
            "seconds_per_step": self.duration.step,
            "seconds": self.duration.seconds,
            "memory": self.memory.to_json(),
        }


def estimate_run(overrides: ConfigOverrides[TabularConfig], data: TableData) -> TableRunEstimate:
    """Do everything that precedes the first step, and time a few steps with a copy of the model. Writes nothing."""
    before = load_previous_values(RunDir(run_dir_path("table", overrides)), overrides)
    resolved = resolve_table_config(overrides, data, {} if before is None else before)
    estimator = build_estimator(resolved.config, data)
    estimator.time_limit = attention_seconds(resolved.config, data)
    estimates: list[TableRunEstimate] = []

    def train_loop(trainer: TableTrainer, budget: TimeBudget) -> list[Epoch]:
        step_seconds, memory = profile_table_step(trainer)
        memory = add_table_data(memory, trainer, data)
        duration = estimate_duration(trainer, step_seconds, budget)
        parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
        description = [*describe_training(trainer, estimator, resolved.config.training), duration.describe()]
        if no_ensemble_reason(resolved.config, data) is None:
            description.append(ENSEMBLE_TIME)
        if not resolved.config.no_baseline:
            description.append("Baselines take additional time; --no-baseline leaves them out.")
        estimate = TableRunEstimate(
            resolved=add_auto_sizes(resolved, type(estimator), trainer.hparams),
            description=[*description, f"{parameters:,} parameters. Memory: {memory}."],
            columns=estimator.preprocessor_.describe(),
            device=str(trainer.loss_sum.device),
            rows=(trainer.n_rows, 0 if trainer.validation is None else len(trainer.validation)),
            size=model_size(trainer),
            parameters=parameters,
            batch_size=trainer.batch_size,
            duration=duration,
            memory=memory,
        )
        estimates.append(estimate)
        return []

    estimator._fit(*data.train, None, data.valid, train_loop)
    return estimates[0]


def profile_table_step(trainer: TableTrainer) -> tuple[float, MemoryEstimate]:
    """Seconds and memory of a training step."""

    def make_step(model: nn.Module) -> tuple[Optimizer, Step]:
        step = TableTrainStep(model, trainer.target, trainer.hparams)
        return step.optimizer, lambda rows: step.step(rows, BENCHMARK_LR, trainer.batch_size).item()  # synchronizes

    size = trainer.batch_size
    epochs = (trainer.train_rows.batches(size, make_generator(trainer.seed, number)) for number in count(1))
    batches = (rows for epoch in epochs for rows in epoch)
    return profile_step(trainer.model, make_step, batches, trainer.loss_sum.device)


def estimate_duration(trainer: TableTrainer, step_seconds: float, budget: TimeBudget) -> DurationEstimate:
    """The duration of a run from that of a step and an evaluation."""
    steps, epochs, validation = trainer.steps_per_epoch(), trainer.max_epochs(), trainer.validation
    epochs_per_evaluation = max(1, -(-trainer.hparams.eval_every // steps))
    evaluation = retrieval = 0.0
    if validation is not None:
        evaluation = len(validation) * prediction_seconds_per_row(trainer.model, validation, trainer.target)
        max_rows = trainer.hparams.retrieval_rows or 0
        retrieval = retrieval_seconds(trainer.model, trainer.n_rows, validation, trainer.target, max_rows)
    evaluations = 0 if validation is None else -(-(epochs or 1) // epochs_per_evaluation)
    return DurationEstimate(step_seconds, evaluation, retrieval, steps, epochs, evaluations, budget.seconds)


def add_table_data(memory: MemoryEstimate, trainer: TableTrainer, data: TableData) -> MemoryEstimate:
    """The memory of a run: that of a step, the best weights, the rows, and the table that they were read from."""
    train, tables = trainer.train_rows, [split.X for split in (data.train, data.valid, data.test) if split is not None]
    size = size_in_memory([trainer.validation]) + sum(table.nbytes for table in tables if isinstance(table, pa.Table))
    best = 0 if trainer.validation is None else memory.weights
    if isinstance(train, DiskRows):
        on_disk = sum(train.counts) * train.dtype.itemsize
        return replace(memory, data=size + train.window, data_on_disk=on_disk, best=best)
    return replace(memory, data=size + size_in_memory([train]), best=best)
