"""Epoch loop with early stopping, cosine schedule and time limit.

It is not `softlook.train`'s loop: a step on a table takes a few milliseconds, so signals, checkpoints and a device
synchronization in every step would double its time. The device is waited for at the end of an epoch only.
"""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from softlook.base.errors import TrainingError
from softlook.tabular.presets import Hyperparameters
from softlook.tabular.training.train_step import TableTrainStep, cosine_warmup

Epoch = dict[str, Any]
"""Metrics of an epoch: its number, training loss, validation loss and score, is_best and seconds."""
EpochCallback = Callable[[Epoch], None]
MAX_RESERVED_FRACTION = 0.5
"""Fraction of the time limit that may be reserved for what follows the last step."""


@dataclass(frozen=True)
class TimeBudget:
    """A time limit."""

    seconds: float | None = None
    started: float = 0.0

    def elapsed_fraction(self) -> float:
        """Elapsed time as a fraction of the limit."""
        return 0.0 if self.seconds is None else (time.monotonic() - self.started) / self.seconds

    def is_exhausted(self, reserved: float = 0.0) -> bool:
        """Whether the time is up, with `reserved` seconds kept for what follows."""
        return self.seconds is not None and self.elapsed_fraction() + reserved / self.seconds >= 1

    def max_reserved(self) -> float:
        """Seconds that may be reserved for what follows the last step; never more than are left."""
        if self.seconds is None:
            return math.inf
        return self.seconds * max(0.0, min(MAX_RESERVED_FRACTION, 1 - self.elapsed_fraction()))


def _do_nothing() -> None:
    pass


class EpochTrainer(ABC):
    """Trains a model for epochs, evaluates it and keeps the best weights. Subclasses define batches and evaluation."""

    def __init__(
        self, model: nn.Module, train_step: TableTrainStep, *, hparams: Hyperparameters, seed: int, batch_size: int
    ) -> None:
        self.model, self.train_step, self.hparams, self.seed = model, train_step, hparams, seed
        self.batch_size = batch_size
        self.optimizer, self.parameters = train_step.optimizer, train_step.parameters
        self.steps, self.last_eval_step, self.history = 0, 0, list[Epoch]()
        self.best, self.patience_mark, self.bad_evals = -math.inf, -math.inf, 0
        """The best validation metric, the one that last reset the patience, and evaluations since then."""
        self.best_state = dict[str, Tensor]()
        self.rows_seen, self.loss_sum = 0, torch.zeros((), device=self.parameters[0].device)
        """Of the current epoch."""
        self.is_done, self.reserved_seconds, self.reached_limit = False, 0.0, 0.0
        """`reached_limit` is a time limit that was reached once: the run stays finished under it."""
        self.after_step: Callable[[], None] = _do_nothing
        """Called after every step within an epoch; a run checks its clock here and may leave by an exception."""

    # --- what subclasses define --------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def n_rows(self) -> int:
        """Training rows."""

    @abstractmethod
    def epoch_batches(self, number: int) -> Iterator[Any]:
        """The batches of an epoch that are left after `rows_seen` rows."""

    @abstractmethod
    def max_epochs(self) -> int | None:
        """The number of epochs, if it is known in advance."""

    @property
    @abstractmethod
    def has_validation(self) -> bool: ...

    @abstractmethod
    def validation_metrics(self) -> dict[str, float]:
        """`val_loss`, and `val_score` if there is one."""

    def monitors_score(self) -> bool:
        """Whether the best weights are those of the highest score; otherwise those of the lowest loss."""
        return False

    def warmup_progress(self, total_steps: int) -> float:
        """Progress of the learning rate warmup; 1 at its end."""
        return (self.steps + 1) / (self.hparams.warmup * total_steps + 1)

    def reserve_time(self, budget: TimeBudget) -> None:  # noqa: B027  (optional)
        """Reserve time for what follows the last step."""

    def finish(self) -> None:  # noqa: B027  (optional)
        """Called once when training is done, before the last callback."""

    # --- the loop ----------------------------------------------------------------------------------------------------

    def train(self, budget: TimeBudget, callback: EpochCallback) -> list[Epoch]:
        """Train to the end; the model is left with its best weights. Continues after a restored checkpoint."""
        last = self.max_epochs()
        is_between_epochs = bool(self.history) and not self.rows_seen
        self.reserve_time(budget)
        is_late = self._out_of_time(budget)
        self.is_done = is_between_epochs and (
            len(self.history) == last or self.bad_evals >= self.hparams.patience or is_late
        )
        if self.is_done:
            self.finish()
        while not self.is_done:
            number = len(self.history) + 1
            epoch: Epoch = {"epoch": number, "loss": self._train_epoch(number, budget)}
            self.is_done = number == last or self._out_of_time(budget)
            is_due = self.is_done or self.steps - self.last_eval_step >= self.hparams.eval_every
            if self.has_validation and is_due:
                self.last_eval_step = self.steps
                self.is_done = self.evaluate(epoch) or self.is_done or self._out_of_time(budget)
            self.history.append(epoch | {"seconds": time.monotonic() - budget.started})
            if self.is_done:
                self.finish()
            callback(self.history[-1])
        if self.best_state:
            self.model.load_state_dict(self.best_state)
        self.model.eval()
        return self.history

    def evaluate(self, epoch: Epoch) -> bool:
        """Evaluate on the validation rows and keep the best weights; True if patience is exhausted."""
        metrics = self.validation_metrics()
        metric = metrics["val_score"] if self.monitors_score() else -metrics["val_loss"]
        is_best = metric > self.best
        epoch |= {**metrics, "is_best": is_best}
        self.bad_evals += 1
        if metric > self.patience_mark + self.hparams.min_delta:
            self.patience_mark, self.bad_evals = metric, 0
        if is_best:
            self.best = metric
            self.best_state = {name: weights.clone() for name, weights in self.model.state_dict().items()}
        return self.bad_evals >= self.hparams.patience

    def steps_per_epoch(self) -> int:
        """Optimizer steps in an epoch."""
        return -(-self.n_rows // self.batch_size)

    def best_weights(self) -> dict[str, Tensor]:
        """The best weights so far; the current ones if there was no evaluation."""
        return self.best_state or self.model.state_dict()

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """By group and name, all tensors that change in place, except optimizer state and best weights."""
        return {"model": self.model.state_dict()}

    def _learning_rate(self, budget: TimeBudget) -> float:
        """The learning rate of the next step: warmup, then decay with the steps, or the time, that are left."""
        last = self.max_epochs()
        if self.hparams.schedule == "constant" or last is None:
            return self.hparams.lr
        total = last * self.steps_per_epoch()
        decay = max(self.steps / total, budget.elapsed_fraction())
        return cosine_warmup(self.hparams.lr, warmup=self.warmup_progress(total), decay=decay)

    def _train_epoch(self, number: int, budget: TimeBudget) -> float:
        """Train on the rest of an epoch; returns the mean loss."""
        self.model.train()
        for rows in self.epoch_batches(number):
            self.loss_sum += self.train_step.step(rows, self._learning_rate(budget), self.batch_size) * len(rows)
            self.steps += 1
            self.rows_seen += len(rows)
            if self.rows_seen < self.n_rows:
                self.after_step()
            if self._out_of_time(budget):
                break
        loss = self.loss_sum.item() / self.rows_seen
        self.rows_seen, self.loss_sum = 0, torch.zeros_like(self.loss_sum)
        if not math.isfinite(loss):
            raise TrainingError(f"the loss became {loss} in epoch {number}. Try a smaller lr, or grad_clip=1.0.")
        return loss

    def _out_of_time(self, budget: TimeBudget) -> bool:
        """Whether there is no time for another step. A limit once reached stays reached."""
        if budget.seconds is None:
            return False
        if budget.is_exhausted(self.reserved_seconds):
            self.reached_limit = budget.seconds
        return budget.seconds <= self.reached_limit
