"""Pretext tasks, puzzles that rows set without any label: what a hidden cell holds, and which cells were replaced.

Both are read off the tokens behind a model's last block, which is worked out for all of them here, and for [CLS] alone
when it answers. Each column has a head of its own, as TabTransformer has it (Huang et al. 2020).
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from softlook.embed.columns import uniform
from softlook.embed.numbers import bin_edges
from softlook.models.tab_transformer import TabTransformer
from softlook.tabular.encoding.rows import Rows
from softlook.tabular.unlabelled.internals import seen_by, tokens_of

Task = Literal["mlm", "rtd"]
"""Hidden cells, as a masked language model fills them in; or replaced ones that are to be found."""
BINS = 16
"""Bins that a hidden number is one of, each with as many rows in it as any other."""


@dataclass(frozen=True)
class Drawn:
    """By chance: which cells of some rows are chosen, and for each cell what another row has in the same column."""

    chosen: Tensor
    """(N, J) truths, numbers before categories."""
    others: Rows

    def take(self, which: Tensor | slice) -> "Drawn":
        """For some of the rows."""
        return Drawn(self.chosen[which], self.others.take(which))


def draw(rows: Rows, share: float, dice: torch.Generator) -> Drawn:
    """A share of all cells, and for each an equal from a row of chance.

    >>> drawn = draw(Rows(torch.rand(9, 2), torch.zeros(9, 1).long()), 0.5, torch.Generator().manual_seed(0))
    >>> drawn.chosen.shape, drawn.others.numbers.shape
    (torch.Size([9, 3]), torch.Size([9, 2]))
    """
    N, numbers = rows.numbers.shape
    columns, device = numbers + rows.categories.shape[1], rows.numbers.device
    chosen = torch.rand(N, columns, generator=dice) < share
    source = torch.randint(N, (N, columns), generator=dice).to(device)
    others = Rows(rows.numbers.gather(0, source[:, :numbers]), rows.categories.gather(0, source[:, numbers:]))
    return Drawn(chosen.to(device), others)


def is_other(rows: Rows, others: Rows) -> Tensor:
    """(N, J): where cells differ. Two missing ones are the same."""
    missing = rows.numbers.isnan() & others.numbers.isnan()
    numbers = (rows.numbers != others.numbers) & ~missing
    return torch.cat([numbers, rows.categories != others.categories], 1)


class FindReplaced(nn.Module):
    """Of every cell: is it what it was? A cell that chance has replaced by an equal one is."""

    def __init__(self, model: nn.Module, rows: Rows) -> None:
        super().__init__()
        self.first, self.columns, width = _tokens(model, rows)
        self.norm = nn.LayerNorm(width)
        self.weight = nn.Parameter(torch.zeros(self.columns - self.first, width))
        self.bias = nn.Parameter(torch.zeros(self.columns - self.first))

    def loss(self, model: nn.Module, rows: Rows, drawn: Drawn) -> Tensor:
        """The mean over all cells that have tokens."""
        rows, before = rows.mixed(drawn.chosen, drawn.others), rows
        seen = seen_by(model, tokens_of(model, rows))
        scores = torch.einsum("nejc,jc->nej", self.norm(seen), self.weight) + self.bias
        wanted = is_other(rows, before)[:, None, self.first :].to(scores.dtype).expand_as(scores)
        return F.binary_cross_entropy_with_logits(scores, wanted)


class FillIn(nn.Module):
    """Of every hidden cell: which category was it, or in which bin was the number? That it was missing is an answer.

    In place of its token stands a vector that its column has learned for that.
    """

    edges: Tensor

    def __init__(self, model: nn.Module, rows: Rows) -> None:
        super().__init__()
        self.first, self.columns, width = _tokens(model, rows)
        config: Any = model.config
        sizes = [BINS + 1] * config.numbers + list(config.categories)
        self.register_buffer("edges", bin_edges(rows.numbers, most=BINS)[:, 1:-1])
        self.norm = nn.LayerNorm(width)
        self.mask = uniform(width, self.columns - self.first, width)
        self.heads = nn.ModuleList(nn.Linear(width, size) for size in sizes[self.first :])

    def loss(self, model: nn.Module, rows: Rows, drawn: Drawn) -> Tensor:
        """The mean over all hidden cells."""
        hidden, wanted = drawn.chosen[:, self.first :], self.wanted(rows)[:, self.first :]
        tokens = torch.where(hidden[..., None], self.mask, tokens_of(model, rows))
        seen = self.norm(seen_by(model, tokens))
        total = seen.new_zeros(())
        for column, head in enumerate(self.heads):
            scores = head(seen[:, :, column])
            each = F.cross_entropy(
                scores.flatten(0, 1), wanted[:, column].repeat_interleave(scores.shape[1]), reduction="none"
            )
            total = total + (each.view(len(rows), -1).mean(1) * hidden[:, column]).sum()
        return total / hidden.sum().clamp(min=1)

    def wanted(self, rows: Rows) -> Tensor:
        """(N, J): the code of every cell; of a number 0 where it is missing, and else its bin from 1 on."""
        bins = 1 + (rows.numbers[..., None] >= self.edges).sum(-1)
        return torch.cat([bins.masked_fill(rows.numbers.isnan(), 0), rows.categories], 1)


PUZZLES: dict[Task, type[FillIn] | type[FindReplaced]] = {"mlm": FillIn, "rtd": FindReplaced}


def _tokens(model: nn.Module, rows: Rows) -> tuple[int, int, int]:
    """The first column with a token, how many columns there are, and how wide a token is."""
    config: Any = model.config
    first = config.numbers if isinstance(model, TabTransformer) else 0
    return first, config.numbers + len(config.categories), config.dim
