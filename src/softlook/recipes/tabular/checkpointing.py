"""Training loop of a table run: checkpoints, events and graceful stop."""

import logging
import time
from collections.abc import Sequence
from dataclasses import asdict, replace

import numpy as np
import torch
from torch import nn

from softlook.recipes.config.tabular_schema import TabularTrainingConfig
from softlook.tabular.checkpointing import TableTrainState
from softlook.tabular.estimator import TableEstimator
from softlook.tabular.formatting import plural
from softlook.tabular.preprocessing.target import RegressionTarget
from softlook.tabular.presets import Hyperparameters
from softlook.tabular.training.runtime import Epoch, TimeBudget
from softlook.tabular.training.trainer import TableTrainer
from softlook.train.batching.batches import DataCursor
from softlook.train.checkpoint.checkpoint_manager import CheckpointManager
from softlook.train.checkpoint.run_dir import RunDir
from softlook.train.checkpoint.train_state import Progress
from softlook.train.events import (
    Callback,
    Evaluated,
    Event,
    Finished,
    Saved,
    Started,
    StepLogged,
    StopTraining,
    Warned,
    describe_stop,
    dispatch,
)
from softlook.train.mixed_precision import choose_dtype, cpu_has_bf16
from softlook.train.signals import GracefulStop

log = logging.getLogger("softlook.recipes")
LOG_SECONDS = 5.0
"""Seconds between log events within an epoch."""
MAX_LISTED_COLUMNS = 40
MUTABLE_HYPERPARAMETERS = ("epochs", "patience")
"""Hyperparameters that may change when a run is resumed."""


class TrainingStopped(BaseException):
    """Training was stopped by a signal, after a checkpoint was saved."""


class CheckpointedTraining:
    """Runs a trainer from the last checkpoint to the end or to a signal."""

    def __init__(
        self, folder: RunDir, estimator: TableEstimator, training: TabularTrainingConfig, callbacks: Sequence[Callback]
    ) -> None:
        self.folder, self.estimator, self.training, self.callbacks = folder, estimator, training, [*callbacks]
        self.callback_request: StopTraining | None = None

    def __call__(self, trainer: TableTrainer, budget: TimeBudget) -> list[Epoch]:
        """The `train_loop` of an estimator's fit."""
        self.trainer, self.state = trainer, TableTrainState.of(trainer, self.estimator)
        fixed = {name: value for name, value in asdict(trainer.hparams).items() if name not in MUTABLE_HYPERPARAMETERS}
        keep = self.training.keep_checkpoints
        self.checkpoints = CheckpointManager(self.folder.path, keep_checkpoints=keep, settings=fixed)
        self.checkpoints.remove_partial()
        before = self.checkpoints.restore(self.state, self._warn) or Progress()
        self.started = time.monotonic() - before.seconds
        self.saved_at = self.logged_at = time.monotonic()
        self.last_log = trainer.steps, self.logged_at
        count = sum(weights.numel() for weights in trainer.model.parameters())
        device = self.state.device
        dtype = training_dtype(trainer.hparams, device)
        self.emit(Started(trainer.steps, self._max_steps(trainer), str(device), dtype, count, budget.seconds))
        trainer.after_step = self._after_step
        with GracefulStop().install() as self.stop:
            history = trainer.train(replace(budget, started=self.started), self._after_epoch)
        self._finish(self._reason(budget), complete=True)
        return history

    def emit(self, event: Event) -> None:
        """Send an event to all callbacks, which may ask to stop."""
        try:
            dispatch(self.callbacks, event)
        except StopTraining as request:
            self.callback_request, self.trainer.is_stop_requested = request, True

    def _max_steps(self, trainer: TableTrainer) -> int:
        """Maximum number of steps; 0 if early stopping or the time limit decides."""
        last = trainer.max_epochs()
        return 0 if last is None or self.training.max_minutes is not None else last * trainer.steps_per_epoch()

    def _after_step(self) -> None:
        now = time.monotonic()
        if self.stop.received is not None:
            self._stop()
        if now - self.logged_at >= LOG_SECONDS:
            self._log(self.trainer.loss_sum.item() / self.trainer.rows_seen)
        if now - self.saved_at >= self.training.save_every:
            self._save()

    def _after_epoch(self, epoch: Epoch) -> None:
        self._log(epoch["loss"])
        if "val_loss" in epoch:
            self.emit(Evaluated(self.trainer.steps, epoch_metrics(self.estimator, epoch), epoch["is_best"]))
        if self.trainer.is_done or time.monotonic() - self.saved_at >= self.training.save_every:
            self._save()
        if self.stop.received is not None and not self.trainer.is_done:
            self._stop()

    def _stop(self) -> None:
        self._save()
        self._finish(f"stopped by {self.stop.received}", complete=False)
        raise TrainingStopped

    def _log(self, loss: float) -> None:
        trainer, now = self.trainer, time.monotonic()
        (step, when), self.last_log, self.logged_at = self.last_log, (trainer.steps, now), now
        rows_per_second = (trainer.steps - step) * trainer.batch_size / max(now - when, 1e-9)
        gradients = [weights.grad for weights in trainer.parameters if weights.grad is not None]
        grad_norm = nn.utils.get_total_norm(gradients).item() if gradients else 0.0
        lr = float(trainer.optimizer.param_groups[0]["lr"])
        self.emit(StepLogged(trainer.steps, loss, lr, grad_norm, rows_per_second, now - self.started))

    def _save(self) -> None:
        trainer = self.trainer
        is_new = not self.checkpoints.path(trainer.steps).exists()
        best = [epoch["val_loss"] for epoch in trainer.history if epoch.get("is_best")]
        progress = Progress(
            step=trainer.steps,
            cursor=DataCursor(len(trainer.history), trainer.rows_seen),
            seconds=time.monotonic() - self.started,
            best_loss=best[-1] if best else None,
            best_step=trainer.steps,  # each checkpoint contains the best weights so far
            last_eval_step=trainer.last_eval_step,
            evals_since_best=trainer.bad_evals,
        )
        path = self.checkpoints.save(self.state, progress)
        self.saved_at = time.monotonic()
        if is_new:
            self.emit(Saved(trainer.steps, path.name))

    def _finish(self, reason: str, *, complete: bool) -> None:
        best = self.checkpoints.best()
        seconds = time.monotonic() - self.started
        signal = self.stop.received if not complete else None
        self.finished = Finished(self.trainer.steps, reason, seconds, complete, signal, best and str(best))
        self.emit(self.finished)

    def _reason(self, budget: TimeBudget) -> str:
        trainer = self.trainer
        if self.callback_request is not None:
            return describe_stop(self.callback_request)
        if trainer.bad_evals >= trainer.hparams.patience:
            return f"no improvement in {trainer.bad_evals} evaluations"
        # time for the last evaluation is reserved: a run may end before the limit
        is_complete = budget.seconds is None or len(trainer.history) == trainer.max_epochs()
        return "all epochs are done" if is_complete else "the time limit was reached"

    def _warn(self, message: str) -> None:
        log.warning(message)
        self.emit(Warned(0, message))


def describe_training(trainer: TableTrainer, estimator: TableEstimator, training: TabularTrainingConfig) -> list[str]:
    """The inferred columns, the number of rows, the model size and when training ends."""
    n_validation = 0 if trainer.validation is None else len(trainer.validation)
    columns = list_columns(estimator.preprocessor_.describe())
    return [
        "\n".join(["Columns (override with --column-types):", *columns]),
        f"{trainer.n_rows:,} training rows, {n_validation:,} validation rows.",
        f"{trainer.hparams.model}: {format_size(**model_size(trainer))}. {_describe_end(trainer, training)}",
    ]


def training_dtype(hparams: Hyperparameters, device: torch.device) -> str:
    """The dtype of matrix products in training; accumulation is in single precision."""
    if not hparams.mixed_precision:
        return "float32"
    if device.type == "cpu":
        return "bfloat16" if cpu_has_bf16() else "float32"
    return str(choose_dtype("auto", device)).removeprefix("torch.")


def model_size(trainer: TableTrainer) -> dict[str, int]:
    """Depth, width, heads and ensemble members."""
    return {name: getattr(trainer.hparams, name) for name in ("depth", "dim", "heads", "n_members")}


def format_size(*, depth: int, dim: int, heads: int, n_members: int) -> str:
    """A model size in words.

    >>> format_size(depth=2, dim=64, heads=8, n_members=1)
    '2 blocks, width 64, 8 heads'
    """
    members = f", {n_members} ensemble members" if n_members > 1 else ""
    return f"{plural(depth, 'block')}, width {dim}, {plural(heads, 'head')}{members}"


def list_columns(lines: Sequence[str]) -> list[str]:
    """Indented lines about columns; long lists are shortened."""
    hidden = len(lines) - MAX_LISTED_COLUMNS
    more = [f"  and {hidden:,} more"] if hidden > 0 else []
    return [*(f"  {line}" for line in lines[:MAX_LISTED_COLUMNS]), *more]


def _describe_end(trainer: TableTrainer, training: TabularTrainingConfig) -> str:
    last, patience = trainer.max_epochs(), trainer.hparams.patience
    ends = [] if last is None else [f"after {plural(last, 'epoch')}"]
    ends += [] if trainer.validation is None else [f"after {plural(patience, 'evaluation')} without improvement"]
    if training.max_minutes is not None:
        return f"Training ends {', '.join(ends)} or at the time limit, whichever comes first."
    first = ", whichever comes first" if len(ends) > 1 else ""
    return f"Training ends {' or '.join(ends)}{first}; --training.max-minutes sets a limit."


def epoch_metrics(estimator: TableEstimator, epoch: Epoch) -> dict[str, float]:
    """The validation metrics of an epoch; the first one is the loss."""
    loss, target = epoch["val_loss"], estimator.target_
    if isinstance(target, RegressionTarget):
        rmse = float(np.sqrt(loss * np.mean(target.std**2))) if target.outputs == 1 else None
        return {"loss": loss} | ({} if rmse is None else {"rmse": rmse})
    return {"loss": loss, "accuracy": epoch["val_score"]}
