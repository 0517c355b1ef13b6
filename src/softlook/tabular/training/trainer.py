"""Supervised training of a table model, and prediction."""

import copy
import math
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from softlook.tabular.preprocessing.rows import ROW_MULTIPLE, RowSource, TableTensors
from softlook.tabular.preprocessing.target import Target
from softlook.tabular.presets import RELIABLE_SCORE_ROWS, Hyperparameters
from softlook.tabular.training.autosize import batch_size_for, scheduled_epochs
from softlook.tabular.training.loop import EpochTrainer, TimeBudget
from softlook.tabular.training.retrieval import RowRetrieval, fit_retrieval, retrieval_seconds
from softlook.tabular.training.runtime import best_time
from softlook.tabular.training.train_step import TableTrainStep, ensemble_outputs
from softlook.train.rng import make_generator


@torch.inference_mode()
def predict_rows(model: nn.Module, rows: TableTensors, target: Target, retrieval: RowRetrieval | None = None) -> Tensor:
    """(N, C) in double precision: predictions of the ensemble and the retrieval, in batches."""
    model.eval()
    batches = rows.split(rows.inference_batch_size(model))
    return torch.cat([_predict_batch(model, batch, target, retrieval)[: len(batch)] for batch in batches])


def _predict_batch(model: Any, rows: TableTensors, target: Target, retrieval: RowRetrieval | None) -> Tensor:
    """Predictions that do not depend on the number of rows: the last batch is padded, lest other kernels run."""
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


class TableTrainer(EpochTrainer):
    """Trains a model on labelled rows."""

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
        step, size = TableTrainStep(model, target, hparams), batch_size_for(hparams, len(train))
        super().__init__(model, step, hparams=hparams, seed=seed, batch_size=size)
        self.train_rows, self.validation, self.target = train.normalize_weights(), validation, target
        self.retrieval: RowRetrieval | None = None
        self.n_validation_rows, self.uses_retrieval = 0 if validation is None else len(validation), True
        self.retrieval_seconds = 0.0

    @property
    def n_rows(self) -> int:
        return len(self.train_rows)

    def epoch_batches(self, number: int) -> Iterator[TableTensors]:
        return self.train_rows.batches(self.batch_size, make_generator(self.seed, number), self.rows_seen)

    def max_epochs(self) -> int | None:
        if self.hparams.epochs is not None:
            return self.hparams.epochs
        if self.validation is None:
            return -(-self.hparams.steps_without_validation // self.steps_per_epoch())
        return scheduled_epochs(self.hparams, self.steps_per_epoch())

    @property
    def has_validation(self) -> bool:
        return self.validation is not None

    def validation_metrics(self) -> dict[str, float]:
        rows, started = self._validation_sample(), time.monotonic()
        assert rows.targets is not None and rows.weight is not None
        predictions = predict_rows(self.model, rows, self.target)
        loss, score = self.target.evaluate(predictions, rows.targets.to(predictions.device))
        weight = rows.weight.to(predictions.device, torch.double)
        weight = weight / weight.sum()
        metrics = {"val_loss": (loss * weight).sum().item(), "val_score": (score * weight).sum().item()}
        self.reserved_seconds = time.monotonic() - started + self.retrieval_seconds
        return metrics

    def monitors_score(self) -> bool:
        metric = self.hparams.early_stopping_metric
        is_reliable = self.validation is not None and len(self.validation) >= RELIABLE_SCORE_ROWS
        return metric == "score" or (metric == "auto" and is_reliable)

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
