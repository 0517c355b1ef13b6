"""Pretraining of a table model on unlabelled rows."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.tabular.preprocessing.column_types import ColumnOverrides
from softlook.tabular.preprocessing.preprocessor import TablePreprocessor
from softlook.tabular.preprocessing.rows import TableTensors
from softlook.tabular.presets import ARCHITECTURE, AUTO_SIZES, MIN_ROWS_TO_SPLIT, Hyperparameters
from softlook.tabular.pretraining.linear_probe import FeatureScale, is_head_parameter
from softlook.tabular.pretraining.pretext_tasks import PRETEXT_TASKS, CorruptedRows, TaskName, sample_corruption
from softlook.tabular.training.autosize import ModelSize, batch_size_for, fill_sizes
from softlook.tabular.training.build import build_model
from softlook.tabular.training.loop import Epoch, EpochCallback, EpochTrainer, TimeBudget
from softlook.tabular.training.splitting import validation_mask
from softlook.tabular.training.train_step import Forward, TableTrainStep
from softlook.train.rng import make_generator

DEFAULT_EPOCHS, MIN_STEPS, MAX_STEPS = 20, 500, 20_000
"""Default number of epochs, and bounds on the steps."""
PATIENCE = 5
VALIDATION_FRACTION, MAX_VALIDATION_ROWS = 0.1, 10_000
SIZE = ModelSize(dim=64, depth=2, n_members=8, bins=96, attention_dropout=0.2, hidden_dropout=0.1)
"""Model size if the preset leaves it open; members share all blocks but the last."""
WARMUP_STEPS = 50
EVAL_ROWS = 1024
"""Rows that are evaluated at a time."""


@dataclass(frozen=True, eq=False)
class Pretrained:
    """A pretrained model with its preprocessor."""

    task: TaskName
    hparams: Hyperparameters
    overrides: ColumnOverrides
    preprocessor: TablePreprocessor
    weights: dict[str, Tensor]
    """All weights but those of the head."""
    scale: FeatureScale
    """Scale of the features of the linear probe."""
    history: list[Epoch]

    def build_model(self, hparams: Hyperparameters, outputs: int) -> nn.Module:
        """A model with these weights and a new head."""
        model = build_model(hparams, self.preprocessor, None, outputs)
        model.load_state_dict(self.weights, strict=False)
        return model

    def finetuning_hyperparameters(self, hparams: Hyperparameters) -> Hyperparameters:
        """The hyperparameters with the sizes of these weights; raises an error if they ask for others."""
        own = self.hparams
        for name in (*ARCHITECTURE, *(name for name in AUTO_SIZES if getattr(hparams, name))):
            _check_same(name, getattr(own, name), getattr(hparams, name))
        return replace(fill_sizes(hparams, own), shared_blocks=own.shared_blocks, linear_skip=True, retrieval_rows=None)

    def check_overrides(
        self, column_types: Mapping[Any, Any] | None, ordinal_categories: Mapping[Any, Any] | None
    ) -> None:
        """Raise an error if column types or orders changed since `pretrain`."""
        now = ColumnOverrides.of(self.preprocessor.encoder.names, column_types, ordinal_categories)
        _check_same("ordinal_categories", self.overrides.orders, now.orders)
        _check_same("column_types", self.overrides.column_types, now.column_types)


def _check_same(name: str, then: Any, now: Any) -> None:
    if then != now:
        raise ConfigError(
            f"{name} was {then!r:.200} in pretrain, and is {now!r:.200} now. "
            "Use the same value, or call pretrain again."
        )


def pretraining_hyperparameters(hparams: Hyperparameters) -> Hyperparameters:
    """The hyperparameters with all sizes. Members are expanded late, so that they cost next to nothing."""
    if not hparams.n_members:
        hparams = replace(hparams, shared_blocks=None)
    return replace(fill_sizes(hparams, SIZE), linear_skip=True)


@dataclass(frozen=True)
class PretrainParams:
    """Task, fraction of corrupted cells and epochs of pretraining."""

    task: TaskName
    corruption_rate: float
    epochs: int | None

    def __post_init__(self) -> None:
        if self.task not in PRETEXT_TASKS:
            raise ConfigError(f"task: expected 'mlm' (masked cells) or 'rtd' (replaced cells); got {self.task!r}")
        if not (isinstance(self.corruption_rate, int | float) and 0 < self.corruption_rate < 1):
            raise ConfigError(f"corruption_rate: expected a number between 0 and 1; got {self.corruption_rate!r}")
        if self.epochs is not None and not (isinstance(self.epochs, int) and self.epochs > 0):
            raise ConfigError(f"epochs: expected an integer >= 1; got {self.epochs!r}")


def pretrain_model(
    rows: TableTensors,
    preprocessor: TablePreprocessor,
    hparams: Hyperparameters,
    params: PretrainParams,
    *,
    overrides: ColumnOverrides,
    seed: int,
    budget: TimeBudget,
    callback: EpochCallback,
) -> Pretrained:
    """Pretrain a new model on rows, on their device."""
    model = build_model(hparams, preprocessor, rows.numbers.cpu(), 1).to(rows.numbers.device)
    if hparams.model == "TabTransformer" and not preprocessor.cardinalities:
        raise ConfigError(
            "a TabTransformer attends to categories only, and this table has none: there is nothing to pretrain. "
            "A TableTransformer attends to numbers too."
        )
    trainer = PretrainTrainer(model, rows, params=params, hparams=hparams, seed=seed)
    history = trainer.train(budget, callback)
    weights = {
        name: tensor.cpu().clone() for name, tensor in model.state_dict().items() if not is_head_parameter(model, name)
    }
    scale = FeatureScale.of(model, rows).to(torch.device("cpu"))
    return Pretrained(params.task, hparams, overrides, preprocessor, weights, scale, history)


class PretextStep(TableTrainStep):
    """A training step with the loss of a pretext task."""

    can_capture = False

    def __init__(self, model: nn.Module, task: Any, hparams: Hyperparameters) -> None:
        super().__init__(model, None, hparams, task.parameters())
        self.task = task

    def micro_batches(self, rows: CorruptedRows) -> Iterator[CorruptedRows]:
        yield rows

    def loss(self, rows: CorruptedRows, forward: Forward) -> Tensor:
        return self.task.loss(self.model, rows)


class PretrainTrainer(EpochTrainer):
    """Trains a model on a pretext task, with new corruptions in every epoch."""

    def __init__(
        self, model: nn.Module, rows: TableTensors, *, params: PretrainParams, hparams: Hyperparameters, seed: int
    ) -> None:
        mask = torch.from_numpy(_validation_mask(len(rows), seed)).to(rows.numbers.device)
        self.train_rows, validation = rows.take(~mask), rows.take(mask)
        self.params, self.validation = params, None
        if len(validation):
            corruption = sample_corruption(validation, params.corruption_rate, make_generator(seed, 0))
            self.validation = CorruptedRows(validation, corruption)
        hparams = replace(
            hparams,
            grad_clip=hparams.grad_clip or 1.0,
            patience=PATIENCE,
            min_delta=0.0,
            eval_every=1,
            schedule="cosine",
            epochs=params.epochs,
        )
        task = PRETEXT_TASKS[params.task](model, self.train_rows).float().to(rows.numbers.device)
        step, size = PretextStep(model, task, hparams), batch_size_for(hparams, len(self.train_rows))
        super().__init__(model, step, hparams=hparams, seed=seed, batch_size=size)
        self.task = task

    @property
    def n_rows(self) -> int:
        return len(self.train_rows)

    def epoch_batches(self, number: int) -> Iterator[CorruptedRows]:
        generator = make_generator(self.seed, number)
        corruption = sample_corruption(self.train_rows, self.params.corruption_rate, generator)
        return CorruptedRows(self.train_rows, corruption).batches(self.batch_size, generator, self.rows_seen)

    def max_epochs(self) -> int:
        steps = self.steps_per_epoch()
        return self.params.epochs or max(min(DEFAULT_EPOCHS, MAX_STEPS // steps), -(-MIN_STEPS // steps), 1)

    def warmup_progress(self, total_steps: int) -> float:
        return (self.steps + 1) / WARMUP_STEPS

    @property
    def has_validation(self) -> bool:
        return self.validation is not None

    @torch.no_grad()
    def validation_metrics(self) -> dict[str, float]:
        assert self.validation is not None
        self.model.eval()
        total = 0.0
        for at in range(0, len(self.validation), EVAL_ROWS):
            batch = self.validation.take(slice(at, at + EVAL_ROWS))
            total += self.task.loss(self.model, batch).item() * len(batch)
        return {"val_loss": total / len(self.validation)}


def _validation_mask(rows: int, seed: int) -> np.ndarray:
    if rows < MIN_ROWS_TO_SPLIT:
        return np.zeros(rows, dtype=bool)
    return validation_mask(rows, min(VALIDATION_FRACTION, MAX_VALIDATION_ROWS / rows), seed=seed)
