"""Pretext tasks: masked cells (MLM) and replaced cells (RTD).

Both read the cell states after a model's last block, which is computed for all cells here and for [CLS] alone in
supervised training. Each column has its own head, as in TabTransformer (Huang et al. 2020).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from softlook.embed.features import compute_bins, uniform_parameter
from softlook.models.tab_transformer import TabTransformer
from softlook.tabular.preprocessing.rows import TableTensors
from softlook.tabular.pretraining.linear_probe import contextual_cells, embed_cells

TaskName = Literal["mlm", "rtd"]
"""Masked cells, predicted as by a masked language model; or replaced token detection as in ELECTRA."""
BINS = 16
"""Equal-frequency bins that a masked number is classified into."""


@dataclass(frozen=True)
class Corruption:
    """Randomly chosen cells, and for each cell the value of another row in the same column."""

    mask: Tensor
    """(N, J) booleans, numbers before categories."""
    replacements: TableTensors

    def take(self, rows: Tensor | slice) -> "Corruption":
        """For some of the rows."""
        return Corruption(self.mask[rows], self.replacements.take(rows))


def sample_corruption(rows: TableTensors, rate: float, generator: torch.Generator) -> Corruption:
    """Choose a fraction of all cells, and replacements from random rows.

    >>> rows = TableTensors(torch.rand(9, 2), torch.zeros(9, 1).long())
    >>> corruption = sample_corruption(rows, 0.5, torch.Generator().manual_seed(0))
    >>> corruption.mask.shape, corruption.replacements.numbers.shape
    (torch.Size([9, 3]), torch.Size([9, 2]))
    """
    N, n_numbers = rows.numbers.shape
    columns, device = n_numbers + rows.categories.shape[1], rows.numbers.device
    mask = torch.rand(N, columns, generator=generator) < rate
    source = torch.randint(N, (N, columns), generator=generator).to(device)
    numbers = rows.numbers.gather(0, source[:, :n_numbers])
    categories = rows.categories.gather(0, source[:, n_numbers:])
    return Corruption(mask.to(device), TableTensors(numbers, categories))


@dataclass(frozen=True)
class CorruptedRows:
    """Rows with their corruption."""

    rows: TableTensors
    corruption: Corruption

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, rows: Tensor | slice) -> "CorruptedRows":
        return CorruptedRows(self.rows.take(rows), self.corruption.take(rows))

    def batches(self, size: int, generator: torch.Generator, start: int = 0) -> Iterator["CorruptedRows"]:
        """All rows once in shuffled batches, skipping the first `start` rows of that order."""
        order = torch.randperm(len(self), generator=generator)[start:].to(self.rows.numbers.device)
        return (self.take(rows) for rows in order.split(size))


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
        corrupted = batch.rows.replace_cells(batch.corruption.mask, batch.corruption.replacements)
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
        masked, labels = batch.corruption.mask[:, self.first :], self.labels(batch.rows)[:, self.first :]
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
