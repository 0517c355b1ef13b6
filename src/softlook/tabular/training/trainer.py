"""Training of a table model with early stopping, cosine schedule and time limit; and prediction.

It is not `softlook.train`'s loop: a step on a table takes a few milliseconds, so signals, checkpoints and a device
synchronization in every step would double its time. The device is waited for at the end of an epoch only.
"""

import copy
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from softlook.base.errors import TrainingError
from softlook.tabular.preprocessing.rows import ROW_MULTIPLE, RowSource, TableTensors
from softlook.tabular.preprocessing.target import Target
from softlook.tabular.presets import RELIABLE_SCORE_ROWS, Hyperparameters
from softlook.tabular.training.autosize import batch_size_for, scheduled_epochs
from softlook.tabular.training.retrieval import RowRetrieval, fit_retrieval, retrieval_seconds
from softlook.tabular.training.runtime import Epoch, EpochCallback, TimeBudget, best_time
from softlook.tabular.training.scoring import BUILT_IN, scorer_score
from softlook.tabular.training.train_step import TableTrainStep, cosine_warmup, ensemble_outputs
from softlook.train.rng import make_generator


class EpochTrainer(ABC):
    """Trains a model for epochs, evaluates it and keeps the best weights. Subclasses define length and evaluation."""

    def __init__(
        self, train_step: TableTrainStep, train_rows: RowSource, validation: Any, *, hparams: Hyperparameters, seed: int
    ) -> None:
        self.model, self.train_step, self.hparams, self.seed = train_step.model, train_step, hparams, seed
        self.train_rows, self.validation, self.n_rows = train_rows, validation, len(train_rows)
        self.has_validation, self.batch_size = validation is not None, batch_size_for(hparams, self.n_rows)
        self.optimizer, self.parameters = train_step.optimizer, train_step.parameters
        self.steps, self.last_eval_step, self.history = 0, 0, list[Epoch]()
        self.best, self.patience_mark, self.bad_evals = -math.inf, -math.inf, 0
        """The best validation metric, the one that last reset the patience, and evaluations since then."""
        self.best_state = dict[str, Tensor]()
        self.rows_seen, self.loss_sum = 0, torch.zeros((), device=self.parameters[0].device)
        """Of the current epoch."""
        self.is_done, self.reserved_seconds, self.reached_limit = False, 0.0, 0.0
        """`reached_limit` is a time limit that was reached once: the run stays finished under it."""
        self.is_stop_requested = False
        """Whether to end after the next step, as at a time limit."""
        self.after_step: Callable[[], None] = lambda: None
        """Called after every step within an epoch; a run checks its clock here and may leave by an exception."""

    # --- what subclasses define --------------------------------------------------------------------------------------

    @abstractmethod
    def max_epochs(self) -> int | None:
        """The number of epochs, if it is known in advance."""

    @abstractmethod
    def validation_metrics(self) -> dict[str, float]:
        """`val_loss`, and `val_score` if there is one."""

    def epoch_batches(self, number: int) -> Iterator[Any]:
        """The batches of an epoch that are left after `rows_seen` rows."""
        return self.train_rows.batches(self.batch_size, make_generator(self.seed, number), self.rows_seen)

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
        if self.is_stop_requested or budget.seconds is None:
            return self.is_stop_requested
        if budget.is_exhausted(self.reserved_seconds):
            self.reached_limit = budget.seconds
        return budget.seconds <= self.reached_limit


class TableTrainer(EpochTrainer):
    """Trains a model on labelled rows."""

    validation: TableTensors | None
    retrieval: RowRetrieval | None

    def __init__(
        self,
        model: nn.Module,
        train: RowSource,
        validation: TableTensors | None,
        *,
        target: Target,
        hparams: Hyperparameters,
        seed: int,
    ) -> None:
        step = TableTrainStep(model, target, hparams)
        super().__init__(step, train.normalize_weights(), validation, hparams=hparams, seed=seed)
        self.target, self.retrieval = target, None
        self.n_validation_rows, self.uses_retrieval = 0 if validation is None else len(validation), True
        self.retrieval_seconds = 0.0

    def max_epochs(self) -> int | None:
        if self.hparams.epochs is not None:
            return self.hparams.epochs
        if self.validation is None:
            return -(-self.hparams.steps_without_validation // self.steps_per_epoch())
        return scheduled_epochs(self.hparams, self.steps_per_epoch())

    def validation_metrics(self) -> dict[str, float]:
        rows, started = self._validation_sample(), time.monotonic()
        assert rows.targets is not None and rows.weight is not None
        predictions = predict_rows(self.model, rows, self.target)
        loss, score = self.target.evaluate(predictions, rows.targets.to(predictions.device))
        weight = rows.weight.to(predictions.device, torch.double)
        weight = weight / weight.sum()
        metrics = {"val_loss": (loss * weight).sum().item(), "val_score": (score * weight).sum().item()}
        if (name := self.hparams.early_stopping_metric) not in BUILT_IN:
            arrays = (one.cpu().numpy() for one in (predictions, rows.targets, weight))
            metrics["val_score"] = scorer_score(name, self.target, *arrays)
        self.reserved_seconds = time.monotonic() - started + self.retrieval_seconds
        return metrics

    def monitors_score(self) -> bool:
        metric = self.hparams.early_stopping_metric
        is_reliable = self.validation is not None and len(self.validation) >= RELIABLE_SCORE_ROWS
        return is_reliable if metric == "auto" else metric != "loss"

    def reserve_time(self, budget: TimeBudget) -> None:
        """Under a time limit, measure the final evaluation and retrieval, and reserve time for them.

        If they would take too much of the time, there is no retrieval, and fewer validation rows are evaluated.
        """
        if self.validation is None or budget.seconds is None:
            return
        row_seconds = prediction_seconds_per_row(self.model, self.validation, self.target)
        max_rows = self.hparams.retrieval_rows or 0
        is_first = self.best == -math.inf  # later evaluations compare with the first one: on the same rows
        if is_first and row_seconds * self.n_validation_rows > budget.max_reserved():
            affordable = int(budget.max_reserved() / row_seconds)
            self.n_validation_rows = max(min(ROW_MULTIPLE, self.n_validation_rows), affordable)
            self.uses_retrieval = False
        if self.uses_retrieval:
            self.retrieval_seconds = retrieval_seconds(self.model, self.n_rows, self.validation, self.target, max_rows)
        if is_first and row_seconds * self.n_validation_rows + self.retrieval_seconds > budget.max_reserved():
            self.uses_retrieval, self.retrieval_seconds = False, 0.0
        self.reserved_seconds = row_seconds * self.n_validation_rows + self.retrieval_seconds

    def finish(self) -> None:
        """Fit the retrieval with the best weights."""
        if self.validation is None or not self.hparams.retrieval_rows or not self.uses_retrieval:
            return
        best = copy.deepcopy(self.model)
        best.load_state_dict(self.best_weights())
        self.retrieval = fit_retrieval(
            best,
            self.train_rows,
            self.validation,
            target=self.target,
            max_rows=self.hparams.retrieval_rows,
            seed=self.seed,
        )

    def _validation_sample(self) -> TableTensors:
        """The validation rows that there is time for; a random sample if not all."""
        assert self.validation is not None
        if self.n_validation_rows >= len(self.validation):
            return self.validation
        order = torch.randperm(len(self.validation), generator=make_generator(self.seed, 0))
        return self.validation.take(order[: self.n_validation_rows].to(self.validation.numbers.device))


# --- prediction -------------------------------------------------------------------------------------------------------


@torch.inference_mode()
def predict_rows(model: nn.Module, rows: TableTensors, target: Target, retrieval: RowRetrieval | None = None) -> Tensor:
    """(N, C) in double precision: predictions of the ensemble and the retrieval, in batches."""
    model.eval()
    batches = rows.split(rows.inference_batch_size(model))
    return torch.cat([_predict_batch(model, batch, target, retrieval)[: len(batch)] for batch in batches])


def _predict_batch(model: Any, rows: TableTensors, target: Target, retrieval: RowRetrieval | None) -> Tensor:
    """Predictions that do not depend on the number of rows: the last batch is padded, so that the same kernels run."""
    count = -(-len(rows) // ROW_MULTIPLE) * ROW_MULTIPLE
    if count != len(rows):
        rows = rows.take(torch.arange(count, device=rows.numbers.device).clamp(max=len(rows) - 1))
    if retrieval is None:
        outputs = ensemble_outputs(model, rows)
        return target.predict(outputs.cpu() if outputs.device.type == "mps" else outputs)
    states = model.states(rows.numbers, rows.categories)
    outputs, query = model.classify(states), states.mean(1)
    if query.device.type == "mps":  # no double precision there
        outputs, query = outputs.cpu(), query.cpu()
    return retrieval.combine(target.predict(outputs), query)


def prediction_seconds_per_row(model: nn.Module, rows: TableTensors, target: Target) -> float:
    """Seconds per row of prediction, measured on one batch."""
    batch = rows.take(slice(rows.inference_batch_size(model)))
    return best_time(lambda: predict_rows(model, batch, target).sum().item()) / len(batch)  # item() synchronizes
