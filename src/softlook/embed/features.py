"""Feature embeddings of table columns: numeric and categorical."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from softlook.base.errors import ConfigError, DtypeError, ShapeError
from softlook.base.tensors import can_read

Numbers = Float[Tensor, "_ _"]
Categories = Int[Tensor, "_ _"]


class LinearFeatureEmbedding(nn.Module):
    """Linear embedding of numeric features (FT-Transformer): x_j W_j + b_j for column j. NaN raises an error.

    >>> LinearFeatureEmbedding(3, 8)(torch.randn(5, 3)).shape
    torch.Size([5, 3, 8])
    """

    def __init__(self, columns: int, dim: int) -> None:
        super().__init__()
        self.weight, self.bias = uniform_parameter(dim, columns, dim), uniform_parameter(dim, columns, dim)

    def forward(self, numbers: Float[Tensor, "N J"]) -> Float[Tensor, "N J C"]:
        return torch.addcmul(self.bias, check_complete(numbers, self.weight.shape[0])[..., None], self.weight)


class CategoricalEmbedding(nn.Module):
    """Embedding of categorical features: a vector per category of each column, and a bias per column.

    `cardinalities` are the numbers of categories of the columns, whose vectors are concatenated in one table. To embed
    missing values, count them as a category.

    >>> CategoricalEmbedding((2, 5), 8)(torch.tensor([[1, 4], [0, 0]])).shape
    torch.Size([2, 2, 8])
    """

    offsets: Tensor

    def __init__(self, cardinalities: Sequence[int], dim: int, *, bias: bool = True) -> None:
        super().__init__()
        if any(cardinality < 1 for cardinality in cardinalities):
            raise ConfigError(f"cardinalities must be at least 1, got {tuple(cardinalities)}")
        self.cardinalities = tuple(cardinalities)
        weight = uniform_parameter(dim, sum(cardinalities), dim)
        self.bias = uniform_parameter(dim, len(cardinalities), dim) if bias else None
        self.weight = weight
        self.register_buffer("offsets", category_offsets(cardinalities), persistent=False)

    def forward(self, categories: Int[Tensor, "N J"]) -> Float[Tensor, "N J C"]:
        vectors = F.embedding(self.indices(categories), self.weight)
        return vectors if self.bias is None else vectors + self.bias

    def indices(self, categories: Int[Tensor, "N J"]) -> Int[Tensor, "N J"]:
        """Rows of the table, after a check of the range of every column."""
        if categories.shape[1] != len(self.cardinalities):
            raise ShapeError(f"expected {len(self.cardinalities)} categorical columns, got {categories.shape[1]}")
        if categories.numel() and can_read(categories):
            bounds = zip(self.cardinalities, categories.amin(0).tolist(), categories.amax(0).tolist(), strict=True)
            for column, (count, low, high) in enumerate(bounds):
                if low < 0 or high >= count:
                    raise ShapeError(
                        f"categories of column {column} must be from 0 to {count - 1}, got {low} to {high}"
                    )
        return categories + self.offsets


class ColumnEmbedding(nn.Module):
    """TabTransformer's embedding: the vector of a category, concatenated with one that its whole column shares.

    `shared` is the width of the shared part; default: dim / 8. `CategoricalEmbedding` adds the column's vector instead.

    >>> ColumnEmbedding((2, 5), 8)(torch.tensor([[1, 4], [0, 0]])).shape
    torch.Size([2, 2, 8])
    """

    def __init__(self, cardinalities: Sequence[int], dim: int, *, shared: int | None = None) -> None:
        super().__init__()
        shared = dim // 8 if shared is None else shared
        if not 0 <= shared < dim:
            raise ConfigError(f"the shared part of a column must be from 0 to {dim - 1} wide, got {shared}")
        self.values = CategoricalEmbedding(cardinalities, dim - shared, bias=False)
        self.columns = uniform_parameter(shared, len(cardinalities), shared)

    def forward(self, categories: Int[Tensor, "N J"]) -> Float[Tensor, "N J C"]:
        values = self.values(categories)
        return torch.cat([values, self.columns.expand(values.shape[0], -1, -1)], -1)


class PiecewiseLinearEmbedding(nn.Module):
    """Piecewise linear embedding of numeric features (Gorishniy et al. 2022): sum_t e_t(x) W_t + b over bins t.

    e_t(x) = (x - edge_t) / (edge_(t+1) - edge_t), clamped to [0, 1]: bins below x are 1, its own bin is filled in part,
    bins above x are 0. Outside of all edges the embedding is constant.

    `edges` are those of `compute_bins`, (J, bins + 1), ascending. A repeated edge makes an empty bin, so columns may
    have fewer bins. Edges are saved with the weights and not trained. `activation` adds a ReLU.

    >>> numbers = torch.randn(100, 3)
    >>> PiecewiseLinearEmbedding(compute_bins(numbers, max_bins=10), 8)(numbers).shape
    torch.Size([100, 3, 8])
    """

    edges: Tensor

    def __init__(self, edges: Float[Tensor, "J _"], dim: int, *, activation: bool = False) -> None:
        super().__init__()
        columns, bins = edges.shape[0], edges.shape[1] - 1
        if bins < 1 or (can_read(edges) and not (edges.diff(dim=1) >= 0).all()):
            raise ConfigError("edges must be at least two ascending numbers per column: use compute_bins")
        self.register_buffer("edges", edges.detach().clone())
        self.weight, self.bias = uniform_parameter(bins, columns, bins, dim), uniform_parameter(dim, columns, dim)
        self.activation = activation

    def forward(self, numbers: Float[Tensor, "N J"]) -> Float[Tensor, "N J C"]:
        check_columns(numbers, self.edges.shape[0])
        tokens = _linear_per_column(piecewise_linear_encoding(numbers, self.edges), self.weight, self.bias)
        return F.relu(tokens) if self.activation else tokens


class PeriodicEmbedding(nn.Module):
    """Periodic embedding of numeric features (PLR, Gorishniy et al. 2022): relu([cos(2πfx), sin(2πfx)] W + b).

    The trainable frequencies f of each column start around 0 with standard deviation `sigma`. With `lite`, all columns
    share W and b (PLR(lite)).

    >>> PeriodicEmbedding(3, 8, frequencies=16)(torch.randn(5, 3)).shape
    torch.Size([5, 3, 8])
    """

    def __init__(
        self, columns: int, dim: int, *, frequencies: int = 48, sigma: float = 0.1, lite: bool = False
    ) -> None:
        super().__init__()
        if frequencies < 1 or not sigma > 0:
            raise ConfigError(f"expected frequencies >= 1 and sigma > 0, got {frequencies} and {sigma}")
        self.frequencies = nn.Parameter(torch.empty(columns, frequencies))
        nn.init.trunc_normal_(self.frequencies, std=sigma, a=-3 * sigma, b=3 * sigma)
        own = () if lite else (columns,)
        self.weight = uniform_parameter(2 * frequencies, *own, 2 * frequencies, dim)
        self.bias = uniform_parameter(2 * frequencies, *own, dim)

    def forward(self, numbers: Float[Tensor, "N J"]) -> Float[Tensor, "N J C"]:
        check_columns(numbers, self.frequencies.shape[0])
        angles = 2 * math.pi * self.frequencies * numbers[..., None]
        waves = torch.cat([angles.cos(), angles.sin()], -1)
        if self.weight.ndim == 2:
            return F.relu(waves @ self.weight + self.bias)
        return F.relu(_linear_per_column(waves, self.weight, self.bias))


class WithMissing(nn.Module):
    """An embedding of numeric features with a learned vector per column for missing values (NaN).

    >>> embedding = WithMissing(LinearFeatureEmbedding(2, 8), columns=2, dim=8)
    >>> bool((embedding(torch.tensor([[0.5, torch.nan]]))[0, 1] == embedding.missing[1]).all())
    True
    """

    def __init__(self, embedding: nn.Module, columns: int, dim: int) -> None:
        super().__init__()
        self.embedding, self.missing = embedding, uniform_parameter(dim, columns, dim)

    def forward(self, numbers: Float[Tensor, "N J"]) -> Float[Tensor, "N J C"]:
        missing = numbers.isnan()
        if can_read(numbers) and not missing.any():
            return self.embedding(numbers)
        return torch.where(missing[..., None], self.missing, self.embedding(numbers.masked_fill(missing, 0)))


def piecewise_linear_encoding(numbers: Float[Tensor, "N J"], edges: Float[Tensor, "J _"]) -> Float[Tensor, "N J _"]:
    """How far each number fills each bin of its column, from 0 to 1; an empty bin stays 0.

    >>> piecewise_linear_encoding(torch.tensor([[-1.0], [1.0], [4.0]]), torch.tensor([[0.0, 2.0, 6.0]]))[:, 0]
    tensor([[0.0000, 0.0000],
            [0.5000, 0.0000],
            [1.0000, 0.5000]])
    """
    inside = numbers.clamp(edges[:, 0], edges[:, -1])  # first, so that infinite numbers are encoded as well
    widths = edges.diff(dim=1)
    return (inside[..., None] - edges[:, :-1]).div(widths.masked_fill(widths == 0, torch.inf)).clamp(0, 1)


def compute_bins(numbers: Float[Tensor, "N J"], max_bins: int = 48) -> Float[Tensor, "J _"]:
    """Bin edges of each column at its quantiles, (J, max_bins + 1).

    A column with few distinct numbers has an edge at each of them. A number so frequent that it would fill a bin by
    itself has an edge, too, and the quantiles are those of the other numbers. NaN is ignored. Rows are padded with the
    last edge; a column without numbers has its edges at 0.

    >>> compute_bins(torch.tensor([[0.0, 5.0], [1.0, 5.0], [2.0, torch.nan], [9.0, 5.0]]), max_bins=3)
    tensor([[0., 1., 2., 9.],
            [5., 5., 5., 5.]])
    """
    if max_bins < 1:
        raise ConfigError(f"max_bins must be at least 1, got {max_bins}")
    rows = [_column_edges(column[~column.isnan()], max_bins) for column in numbers.detach().unbind(1)]
    return torch.stack(rows) if rows else numbers.new_zeros(0, max_bins + 1)


def _column_edges(known: Tensor, max_bins: int) -> Tensor:
    """Edges of one column: its distinct numbers if they are few, else quantiles; padded with the last edge."""
    known = known.sort().values
    edges, counts = known.unique_consecutive(return_counts=True)
    if len(edges) > max_bins + 1:
        is_common = counts > len(known) / max_bins
        common, others = edges[is_common], known[~is_common.repeat_interleave(counts)]
        edges = torch.cat([common, _quantiles(others, max_bins + 1 - len(common))]).sort().values.unique_consecutive()
    last = edges[-1:] if len(edges) else edges.new_zeros(1)
    return torch.cat([edges, last.expand(max_bins + 1 - len(edges))])


def _quantiles(ordered: Tensor, count: int) -> Tensor:
    """`count` quantiles of sorted numbers, from the smallest to the largest."""
    index = torch.linspace(0, len(ordered) - 1, count, dtype=torch.float64, device=ordered.device)
    below, above = ordered[index.floor().long()], ordered[index.ceil().long()]
    return torch.lerp(below.double(), above.double(), index.frac()).to(ordered.dtype)


def _linear_per_column(features: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A linear layer per column: (N, J, M) features, (J, M, C) weights and (J, C) biases."""
    return torch.baddbmm(bias[:, None], features.transpose(0, 1), weight).transpose(0, 1)


def category_offsets(cardinalities: Sequence[int]) -> Int[Tensor, " J"]:
    """Index of the first category of each column in a concatenated table."""
    return torch.tensor([sum(cardinalities[:column]) for column in range(len(cardinalities))], dtype=torch.long)


def check_complete(numbers: Float[Tensor, "N J"], columns: int) -> Float[Tensor, "N J"]:
    """The numbers unchanged; raise an error for a wrong number of columns or a NaN."""
    check_columns(numbers, columns)
    if can_read(numbers) and (missing := numbers.isnan().sum(0)).any():
        column = int(missing.argmax())
        raise DtypeError(
            f"numeric column {column} is missing (NaN) in {int(missing[column])} of {len(numbers)} rows. "
            "Impute it first, for example with the mean of the column."
        )
    return numbers


def check_columns(numbers: Float[Tensor, "N J"], columns: int) -> None:
    if numbers.shape[1] != columns:
        raise ShapeError(f"expected {columns} numeric columns, got {numbers.shape[1]}")


def check_table(numbers: Numbers | None, categories: Categories | None, like: Tensor) -> tuple[Numbers, Categories]:
    """Both parts of a table; a part that is None has no columns. Numbers must have the dtype of `like`.

    >>> numbers, categories = check_table(torch.randn(4, 3), None, like=torch.zeros(1))
    >>> categories.shape
    torch.Size([4, 0])
    """
    rows = [part.shape[0] for part in (numbers, categories) if part is not None]
    if not rows or rows[0] != rows[-1]:
        got = f"{' and '.join(map(str, sorted(rows)))} rows" if rows else "neither"
        raise ShapeError(f"expected numbers, categories or both, with the same number of rows; got {got}")
    N = rows[0]
    numbers = like.new_zeros(N, 0) if numbers is None else numbers
    if numbers.dtype != like.dtype:
        raise DtypeError(f"the numbers are {numbers.dtype}, the model is {like.dtype}. Use numbers.to({like.dtype}).")
    return numbers, like.new_zeros(N, 0, dtype=torch.long) if categories is None else categories


def uniform_parameter(width: int, *sizes: int) -> nn.Parameter:
    """A parameter of these sizes, uniform between -1/sqrt(width) and 1/sqrt(width)."""
    bound = max(width, 1) ** -0.5
    return nn.Parameter(torch.empty(sizes).uniform_(-bound, bound))
