"""Straight lines beside a deep answer: what every column of a table says by itself."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F


class Beside(nn.Module):
    """Scores that add up: so much for each number, for each category, and for each cell's vector.

    A deep answer from few labels forgets what a single column says by itself; this does not. A missing number counts as
    0 here, as its vector tells what is missing. It begins with nothing to say.

    >>> beside = Beside(2, (3, 4), tokens=4, dim=8, classes=5)
    >>> beside(torch.randn(6, 2), torch.ones(6, 2).long(), torch.randn(6, 1, 4, 8)).shape
    torch.Size([6, 1, 5])
    """

    first: Tensor

    def __init__(self, numbers: int, categories: Sequence[int], *, tokens: int, dim: int, classes: int) -> None:
        super().__init__()
        self.numbers = nn.Parameter(torch.zeros(numbers, classes))
        self.categories = nn.Parameter(torch.zeros(sum(categories), classes))
        self.cells = nn.Parameter(torch.zeros(tokens, dim, classes))
        starts = [sum(categories[:column]) for column in range(len(categories))]
        self.register_buffer("first", torch.tensor(starts, dtype=torch.long), persistent=False)

    def forward(
        self,
        numbers: Float[Tensor, "N numbers"],
        categories: Int[Tensor, "N categories"],
        cells: Float[Tensor, "N E J C"],
    ) -> Float[Tensor, "N E K"]:
        plain = numbers.nan_to_num() @ self.numbers + F.embedding(categories + self.first, self.categories).sum(1)
        return plain[:, None] + torch.einsum("nejc,jck->nek", cells, self.cells)
