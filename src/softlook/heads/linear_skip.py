"""Linear skip connection from table columns to logits."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F


class LinearSkip(nn.Module):
    """A linear model of the columns, added to the logits of a deep model: of numbers, categories and column states.

    Helps with few labels, where a deep model loses what a single column says. Missing numbers count as 0. All weights
    start at 0.

    >>> skip = LinearSkip(2, (3, 4), tokens=4, dim=8, classes=5)
    >>> skip(torch.randn(6, 2), torch.ones(6, 2).long(), torch.randn(6, 1, 4, 8)).shape
    torch.Size([6, 1, 5])
    """

    offsets: Tensor

    def __init__(self, n_numeric: int, cardinalities: Sequence[int], *, tokens: int, dim: int, classes: int) -> None:
        super().__init__()
        self.numeric_weight = nn.Parameter(torch.zeros(n_numeric, classes))
        self.categorical_weight = nn.Parameter(torch.zeros(sum(cardinalities), classes))
        self.state_weight = nn.Parameter(torch.zeros(tokens, dim, classes))
        offsets = [sum(cardinalities[:column]) for column in range(len(cardinalities))]
        self.register_buffer("offsets", torch.tensor(offsets, dtype=torch.long), persistent=False)

    def forward(
        self,
        numbers: Float[Tensor, "N numbers"],
        categories: Int[Tensor, "N categories"],
        states: Float[Tensor, "N E J C"],
    ) -> Float[Tensor, "N E K"]:
        per_category = F.embedding(categories + self.offsets, self.categorical_weight)
        logits = numbers.nan_to_num() @ self.numeric_weight + per_category.sum(1)
        return logits[:, None] + torch.einsum("nejc,jck->nek", states, self.state_weight)
