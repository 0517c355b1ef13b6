"""Pretext tasks: masked cells (MLM) and replaced cells (RTD), and their training.

Both read the cell states after a model's last block, which is computed for all cells here and for [CLS] alone in
supervised training. Each column has its own head, as in TabTransformer (Huang et al. 2020).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from softlook.base.errors import ConfigError
from softlook.embed.features import compute_bins, uniform_parameter
from softlook.models.tab_transformer import TabTransformer
from softlook.tabular.preprocessing.rows import TableTensors
from softlook.tabular.presets import MIN_ROWS_TO_SPLIT, Hyperparameters
from softlook.tabular.pretraining.linear_probe import contextual_cells, embed_cells
from softlook.tabular.training.row_store import validation_mask
from softlook.tabular.training.train_step import Forward, TableTrainStep
from softlook.tabular.training.trainer import EpochTrainer
from softlook.train.rng import make_generator

TaskName = Literal["mlm", "rtd"]
"""Masked cells, predicted as by a masked language model; or replaced token detection as in ELECTRA."""
BINS = 16
"""Equal-frequency bins that a masked number is classified into."""
DEFAULT_EPOCHS, MIN_STEPS, MAX_STEPS = 20, 500, 20_000
"""Default number of epochs, and bounds on the steps."""
PATIENCE, WARMUP_STEPS = 5, 50
VALIDATION_FRACTION, MAX_VALIDATION_ROWS = 0.1, 10_000
EVAL_ROWS = 1024
"""Rows that are evaluated at a time."""


@dataclass(frozen=True)
class CorruptedRows:
    """Rows, randomly chosen cells, and for each cell the value of another row in the same column."""

    rows: TableTensors
    mask: Tensor
    """(N, J) booleans, numbers before categories."""
    replacements: TableTensors

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, rows: Tensor | slice) -> "CorruptedRows":
        return CorruptedRows(self.rows.take(rows), self.mask[rows], self.replacements.take(rows))


def sample_corruption(rows: TableTensors, rate: float, generator: torch.Generator) -> CorruptedRows:
    """Choose a fraction of all cells, and replacements from random rows.

    >>> rows = TableTensors(torch.rand(9, 2), torch.zeros(9, 1).long())
    >>> corrupted = sample_corruption(rows, 0.5, torch.Generator().manual_seed(0))
    >>> corrupted.mask.shape, corrupted.replacements.numbers.shape
    (torch.Size([9, 3]), torch.Size([9, 2]))
    """
    N, n_numbers = rows.numbers.shape
    columns, device = n_numbers + rows.categories.shape[1], rows.numbers.device
    mask = torch.rand(N, columns, generator=generator) < rate
    source = torch.randint(N, (N, columns), generator=generator).to(device)
    numbers = rows.numbers.gather(0, source[:, :n_numbers])
    categories = rows.categories.gather(0, source[:, n_numbers:])
    return CorruptedRows(rows, mask.to(device), TableTensors(numbers, categories))


def cells_differ(rows: TableTensors, others: TableTensors) -> Tensor:
    """(N, J): where cells differ. Two missing cells are equal."""
    missing = rows.numbers.isnan() & others.numbers.isnan()
    numbers = (rows.numbers != others.numbers) & ~missing
    return torch.cat([numbers, rows.categories != others.categories], 1)


class ReplacedCells(nn.Module):
    """Replaced token detection: was a cell replaced? A cell replaced by an equal value counts as original."""

    def __init__(self, model: nn.Module, rows: TableTensors) -> None:
        super().__init__()
        self.first, columns, dim = _token_layout(model)
        self.norm = nn.LayerNorm(dim)
        self.weight = nn.Parameter(torch.zeros(columns - self.first, dim))
        self.bias = nn.Parameter(torch.zeros(columns - self.first))

    def loss(self, model: Any, batch: CorruptedRows) -> Tensor:
        """Binary cross-entropy, the mean over all cells that have tokens."""
        corrupted = batch.rows.replace_cells(batch.mask, batch.replacements)
        states = contextual_cells(model, embed_cells(model, corrupted))
        logits = torch.einsum("nejc,jc->nej", self.norm(states), self.weight) + self.bias
        labels = cells_differ(corrupted, batch.rows)[:, None, self.first :].to(logits.dtype).expand_as(logits)
        return F.binary_cross_entropy_with_logits(logits, labels)


class MaskedCells(nn.Module):
    """Masked cell prediction: the category, or the bin of the number. Missing is a class of its own.

    A learned vector of the column replaces the token of a masked cell.
    """

    edges: Tensor

    def __init__(self, model: nn.Module, rows: TableTensors) -> None:
        super().__init__()
        self.first, columns, dim = _token_layout(model)
        config: Any = model.config
        sizes = [BINS + 1] * config.n_numeric + list(config.cardinalities)
        self.register_buffer("edges", compute_bins(rows.numbers, max_bins=BINS)[:, 1:-1])
        self.norm = nn.LayerNorm(dim)
        self.mask = uniform_parameter(dim, columns - self.first, dim)
        self.heads = nn.ModuleList(nn.Linear(dim, size) for size in sizes[self.first :])

    def loss(self, model: Any, batch: CorruptedRows) -> Tensor:
        """Cross-entropy, the mean over all masked cells."""
        masked, labels = batch.mask[:, self.first :], self.labels(batch.rows)[:, self.first :]
        tokens = torch.where(masked[..., None], self.mask, embed_cells(model, batch.rows))
        states = self.norm(contextual_cells(model, tokens))
        total = states.new_zeros(())
        for column, head in enumerate(self.heads):
            logits = head(states[:, :, column])
            losses = F.cross_entropy(
                logits.flatten(0, 1), labels[:, column].repeat_interleave(logits.shape[1]), reduction="none"
            )
            total = total + (losses.view(len(batch), -1).mean(1) * masked[:, column]).sum()
        return total / masked.sum().clamp(min=1)

    def labels(self, rows: TableTensors) -> Tensor:
        """(N, J): the code of every cell; for a number 0 if it is missing, otherwise its bin from 1 on."""
        bins = 1 + (rows.numbers[..., None] >= self.edges).sum(-1)
        return torch.cat([bins.masked_fill(rows.numbers.isnan(), 0), rows.categories], 1)


PRETEXT_TASKS: dict[TaskName, type[MaskedCells] | type[ReplacedCells]] = {"mlm": MaskedCells, "rtd": ReplacedCells}


def _token_layout(model: nn.Module) -> tuple[int, int, int]:
    """The first column with a token, the number of columns, and the token width."""
    config: Any = model.config
    first = config.n_numeric if isinstance(model, TabTransformer) else 0
    return first, config.n_numeric + len(config.cardinalities), config.dim


# --- training --------------------------------------------------------------------------------------------------------


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

    train_rows: TableTensors

    def __init__(
        self, model: nn.Module, rows: TableTensors, *, params: PretrainParams, hparams: Hyperparameters, seed: int
    ) -> None:
        hparams = replace(
            hparams,
            grad_clip=hparams.grad_clip or 1.0,
            patience=PATIENCE,
            min_delta=0.0,
            eval_every=1,
            schedule="cosine",
            epochs=params.epochs,
        )
        self.rate, train, validation = params.corruption_rate, rows, None
        if len(rows) >= MIN_ROWS_TO_SPLIT:
            fraction = min(VALIDATION_FRACTION, MAX_VALIDATION_ROWS / len(rows))
            mask = torch.from_numpy(validation_mask(len(rows), fraction, seed=seed)).to(rows.numbers.device)
            train, validation = rows.take(~mask), sample_corruption(rows.take(mask), self.rate, make_generator(seed, 0))
        self.task = PRETEXT_TASKS[params.task](model, train).float().to(rows.numbers.device)
        super().__init__(PretextStep(model, self.task, hparams), train, validation, hparams=hparams, seed=seed)

    def epoch_batches(self, number: int) -> Iterator[CorruptedRows]:
        generator = make_generator(self.seed, number)
        corrupted = sample_corruption(self.train_rows, self.rate, generator)
        order = torch.randperm(len(corrupted), generator=generator)[self.rows_seen :].to(corrupted.mask.device)
        return (corrupted.take(rows) for rows in order.split(self.batch_size))

    def max_epochs(self) -> int:
        steps = self.steps_per_epoch()
        return self.hparams.epochs or max(min(DEFAULT_EPOCHS, MAX_STEPS // steps), -(-MIN_STEPS // steps), 1)

    def warmup_progress(self, total_steps: int) -> float:
        return (self.steps + 1) / WARMUP_STEPS

    @torch.no_grad()
    def validation_metrics(self) -> dict[str, float]:
        self.model.eval()
        total = 0.0
        for at in range(0, len(self.validation), EVAL_ROWS):
            batch = self.validation.take(slice(at, at + EVAL_ROWS))
            total += self.task.loss(self.model, batch).item() * len(batch)
        return {"val_loss": total / len(self.validation)}
