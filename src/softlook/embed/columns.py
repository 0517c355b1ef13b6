"""Rows of a table as vectors: every column becomes a token.

Numbers come as (N, J) floating point, categories as (N, J) whole numbers that count each column's values from 0.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from softlook.base.errors import ConfigError, DtypeError, ShapeError
from softlook.base.tracing import can_read

Numbers = Float[Tensor, "_ _"]
Categories = Int[Tensor, "_ _"]


class NumberTokens(nn.Module):
    """A number times its column's vector, plus its column's bias: x_j W_j + b_j.

    A missing number (NaN) is refused: fill it in first.

    >>> NumberTokens(3, 8)(torch.randn(5, 3)).shape
    torch.Size([5, 3, 8])
    """

    def __init__(self, columns: int, dim: int) -> None:
        super().__init__()
        self.weight, self.bias = uniform(dim, columns, dim), uniform(dim, columns, dim)

    def forward(self, numbers: Float[Tensor, "N J"]) -> Float[Tensor, "N J C"]:
        return torch.addcmul(self.bias, complete(numbers, self.weight.shape[0])[..., None], self.weight)

    def behind(
        self, numbers: Float[Tensor, "N J"], weight: Float[Tensor, "M C"], bias: Float[Tensor, "M"]
    ) -> Float[Tensor, "N J M"]:
        """What a linear layer makes of the tokens, from J vectors in place of N J: x_j (A W_j) + (A b_j + a)."""
        known = complete(numbers, self.weight.shape[0])[..., None]
        return torch.addcmul(F.linear(self.bias, weight, bias), known, F.linear(self.weight, weight))


class CategoryTokens(nn.Module):
    """A vector for each value of each column, and a bias for the column where `bias`.

    `sizes` says how many values each column has. All live in one table, one column's after the other's. To have a
    token for what is missing, count it as one more value.

    >>> CategoryTokens((2, 5), 8)(torch.tensor([[1, 4], [0, 0]])).shape
    torch.Size([2, 2, 8])
    """

    first: Tensor

    def __init__(self, sizes: Sequence[int], dim: int, *, bias: bool = True) -> None:
        super().__init__()
        if any(size < 1 for size in sizes):
            raise ConfigError(f"every categorical column has a value at least; sizes={tuple(sizes)} came")
        self.sizes = tuple(sizes)
        self.table = nn.Embedding(sum(sizes), dim, _weight=uniform(dim, sum(sizes), dim))
        self.bias = uniform(dim, len(sizes), dim) if bias else None
        starts = [sum(sizes[:column]) for column in range(len(sizes))]
        self.register_buffer("first", torch.tensor(starts, dtype=torch.long), persistent=False)

    def forward(self, categories: Int[Tensor, "N J"]) -> Float[Tensor, "N J C"]:
        self._check(categories)
        vectors = self.table(categories + self.first)
        return vectors if self.bias is None else vectors + self.bias

    def behind(
        self, categories: Int[Tensor, "N J"], weight: Float[Tensor, "M C"], bias: Float[Tensor, "M"]
    ) -> Float[Tensor, "N J M"]:
        """What a linear layer makes of the tokens, from the table's vectors in place of N J."""
        self._check(categories)
        vectors = F.embedding(categories + self.first, F.linear(self.table.weight, weight))
        return vectors + (bias if self.bias is None else F.linear(self.bias, weight, bias))

    def _check(self, categories: Tensor) -> None:
        if categories.shape[1] != len(self.sizes):
            raise ShapeError(f"this model reads {len(self.sizes)} columns of categories; {categories.shape[1]} came")
        if not categories.numel() or not can_read(categories):
            return
        bounds = zip(self.sizes, categories.amin(0).tolist(), categories.amax(0).tolist(), strict=True)
        for column, (size, low, high) in enumerate(bounds):
            if low < 0 or high >= size:
                raise ShapeError(f"column {column} of the categories has values 0 to {size - 1}; {low} to {high} came")


class ColumnEmbedding(nn.Module):
    """A value's own vector beside one that all values of its column share, as TabTransformer has it.

    The shared one, `shared` wide, says which column it is; dim / 8 where not told. To have it added instead, use
    `CategoryTokens`: its bias is the column's.

    >>> ColumnEmbedding((2, 5), 8)(torch.tensor([[1, 4], [0, 0]])).shape
    torch.Size([2, 2, 8])
    """

    def __init__(self, sizes: Sequence[int], dim: int, *, shared: int | None = None) -> None:
        super().__init__()
        shared = dim // 8 if shared is None else shared
        if not 0 <= shared < dim:
            raise ConfigError(f"a column's shared part is narrower than the whole, {dim}; shared={shared} came")
        self.values = CategoryTokens(sizes, dim - shared, bias=False)
        self.columns = uniform(shared, len(sizes), shared)

    def forward(self, categories: Int[Tensor, "N J"]) -> Float[Tensor, "N J C"]:
        values = self.values(categories)
        return torch.cat([values, self.columns.expand(values.shape[0], -1, -1)], -1)


def complete(numbers: Float[Tensor, "N J"], columns: int) -> Float[Tensor, "N J"]:
    """The numbers as they are, after it was seen that there are as many columns as should be and nothing is missing."""
    check_columns(numbers, columns)
    if can_read(numbers) and (missing := numbers.isnan().sum(0)).any():
        column = int(missing.argmax())
        raise DtypeError(
            f"column {column} of the numbers is missing (NaN) in {int(missing[column])} of {len(numbers)} rows. "
            "Fill it in first, with the column's mean for example."
        )
    return numbers


def check_columns(numbers: Float[Tensor, "N J"], columns: int) -> None:
    """That there are as many columns as should be."""
    if numbers.shape[1] != columns:
        raise ShapeError(f"this model reads {columns} columns of numbers; {numbers.shape[1]} came")


def table(numbers: Numbers | None, categories: Categories | None, like: Tensor) -> tuple[Numbers, Categories]:
    """Both parts of a table, row by row; a part that is left out has no columns. Numbers must be of the kind of `like`.

    >>> numbers, categories = table(torch.randn(4, 3), None, like=torch.zeros(1))
    >>> categories.shape
    torch.Size([4, 0])
    """
    rows = [part.shape[0] for part in (numbers, categories) if part is not None]
    if not rows or rows[0] != rows[-1]:
        came = f"{' and '.join(map(str, sorted(rows)))} rows" if rows else "neither"
        raise ShapeError(f"a row has numbers, categories or both, as many of one as of the other; {came} came")
    N = rows[0]
    numbers = like.new_zeros(N, 0) if numbers is None else numbers
    if numbers.dtype != like.dtype:
        raise DtypeError(f"the numbers hold {numbers.dtype}, the model {like.dtype}. Use numbers.to({like.dtype}).")
    return numbers, like.new_zeros(N, 0, dtype=torch.long) if categories is None else categories


def uniform(width: int, *sizes: int) -> nn.Parameter:
    """Weights to begin with, of these sizes: even between -1/sqrt(width) and 1/sqrt(width)."""
    bound = max(width, 1) ** -0.5
    return nn.Parameter(torch.empty(sizes).uniform_(-bound, bound))
