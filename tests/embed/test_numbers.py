"""Piecewise-linear and periodic embeddings of numbers, and embeddings of missing numbers."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from softlook import ShapeError
from softlook.base.errors import ConfigError
from softlook.embed import (
    LinearFeatureEmbedding,
    PeriodicEmbedding,
    PiecewiseLinearEmbedding,
    WithMissing,
    compute_bins,
)
from softlook.embed.features import piecewise_linear_encoding

FEWER_EXAMPLES = settings(max_examples=40)
number_lists = st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=30)
EMBEDDINGS = ("piecewise", "piecewise with activation", "periodic", "periodic lite", "linear")


def make_embedding(name: str, numbers: Tensor, dim: int = 8) -> nn.Module:
    columns = numbers.shape[1]
    if name.startswith("piecewise"):
        return PiecewiseLinearEmbedding(compute_bins(numbers, max_bins=6), dim, activation="activation" in name)
    if name.startswith("periodic"):
        return PeriodicEmbedding(columns, dim, frequencies=5, lite="lite" in name)
    return LinearFeatureEmbedding(columns, dim)


def reference_encoding(x: float, edges: list[float]) -> list[float]:
    """The encoding of one number, bin by bin; `edges` are distinct."""
    encoding = []
    for low, high in zip(edges[:-1], edges[1:], strict=True):
        encoding.append(0.0 if x < low else 1.0 if x >= high else (x - low) / (high - low))
    return encoding


@FEWER_EXAMPLES
@given(number_lists, st.integers(1, 9))
def test_the_piecewise_linear_encoding_matches_its_formula(numbers: list[float], max_bins: int) -> None:
    column = torch.tensor(numbers, dtype=torch.float64)[:, None]
    edges = compute_bins(column, max_bins=max_bins)
    distinct = edges[0].unique().tolist()
    expected = [reference_encoding(x, distinct) + [0.0] * (max_bins + 1 - len(distinct)) for x in column[:, 0].tolist()]
    assert_close(
        piecewise_linear_encoding(column, edges)[:, 0], torch.tensor(expected, dtype=torch.float64).view(-1, max_bins)
    )


@FEWER_EXAMPLES
@given(number_lists, st.integers(1, 9))
def test_the_encoding_of_an_edge_is_binary_and_the_encoding_is_monotonic(numbers: list[float], max_bins: int) -> None:
    edges = compute_bins(torch.tensor(numbers)[:, None], max_bins=max_bins)
    at_edges = piecewise_linear_encoding(edges.T, edges)[:, 0]
    assert ((at_edges == 0) | (at_edges == 1)).all()
    assert at_edges[-1].sum() == len(edges.unique()) - 1  # at the last edge all bins are 1
    ascending = torch.linspace(-120, 120, 50)[:, None]
    assert (piecewise_linear_encoding(ascending, edges).diff(dim=0) >= 0).all()


@FEWER_EXAMPLES
@given(st.lists(st.floats(-100, 100, width=32), min_size=60, max_size=90, unique=True), st.integers(1, 9))
def test_edges_of_many_distinct_numbers_are_quantiles(numbers: list[float], max_bins: int) -> None:
    edges = compute_bins(torch.tensor(numbers, dtype=torch.float64)[:, None], max_bins=max_bins)
    assert_close(edges[0], torch.from_numpy(np.quantile(numbers, np.linspace(0, 1, max_bins + 1))))


def test_every_one_of_few_distinct_numbers_is_an_edge_even_a_rare_one() -> None:
    column = torch.tensor([0.0] * 500 + [7.0] + [9.0] * 500)[:, None]
    assert compute_bins(column, max_bins=3).tolist() == [[0.0, 7.0, 9.0, 9.0]]


def test_missing_numbers_do_not_change_the_edges() -> None:
    numbers = torch.randn(200, 2)
    with_missing = torch.cat([numbers, torch.full((50, 2), torch.nan)])
    assert_close(compute_bins(with_missing, max_bins=7), compute_bins(numbers, max_bins=7), rtol=0, atol=0)


@pytest.mark.parametrize("value", [3.0, torch.nan], ids=["constant", "all missing"])
def test_a_constant_or_empty_column_has_no_bins_but_an_embedding(value: float) -> None:
    numbers = torch.full((5, 1), value)
    edges = compute_bins(numbers, max_bins=4)
    assert edges.shape == (1, 5) and len(edges.unique()) == 1
    tokens = WithMissing(PiecewiseLinearEmbedding(edges, 8), columns=1, dim=8)(numbers)
    assert tokens.isfinite().all()
    assert_close(tokens, tokens[:1].expand_as(tokens))


def test_tables_without_rows_or_columns_are_supported() -> None:
    assert compute_bins(torch.empty(0, 2), max_bins=4).tolist() == [[0.0] * 5] * 2
    assert compute_bins(torch.empty(5, 0), max_bins=4).shape == (0, 5)
    piecewise = PiecewiseLinearEmbedding(compute_bins(torch.empty(5, 0), max_bins=4), 8)
    assert piecewise(torch.empty(5, 0)).shape == (5, 0, 8)
    assert PeriodicEmbedding(0, 8)(torch.empty(5, 0)).shape == (5, 0, 8)


def test_the_embedding_is_constant_outside_of_the_edges() -> None:
    numbers = torch.randn(100, 1)
    tokens = PiecewiseLinearEmbedding(compute_bins(numbers, max_bins=6), 8)
    extreme = torch.tensor([[-torch.inf], [-1e30], [numbers.min()], [numbers.max()], [1e30], [torch.inf]])
    lowest, *_, highest = outputs = tokens(extreme)
    assert_close(outputs[:3], lowest.expand(3, 1, 8))
    assert_close(outputs[3:], highest.expand(3, 1, 8))


def test_the_periodic_embedding_matches_its_formula() -> None:
    tokens, x = PeriodicEmbedding(2, 8, frequencies=3), torch.randn(4, 2)
    for column in range(2):
        angle = 2 * torch.pi * x[:, column, None] * tokens.frequencies[column]
        expected = torch.cat([angle.cos(), angle.sin()], 1) @ tokens.weight[column] + tokens.bias[column]
        assert_close(tokens(x)[:, column], expected.relu(), rtol=1e-5, atol=1e-6)


def test_columns_of_a_lite_periodic_embedding_share_weights_but_not_frequencies() -> None:
    tokens = PeriodicEmbedding(3, 8, frequencies=5, lite=True)
    assert tokens.frequencies.shape == (3, 5) and tokens.weight.shape == (10, 8)


@pytest.mark.parametrize("name", EMBEDDINGS)
def test_a_missing_number_changes_only_its_own_embedding(name: str) -> None:
    numbers = torch.randn(20, 3)
    tokens = WithMissing(make_embedding(name, numbers), columns=3, dim=8)
    with_missing = numbers.clone()
    with_missing[4, 1] = torch.nan
    is_present = ~with_missing.isnan()
    assert_close(tokens(with_missing)[is_present], tokens(numbers)[is_present], rtol=0, atol=0)
    assert_close(tokens(with_missing)[4, 1], tokens.missing[1], rtol=0, atol=0)


@pytest.mark.parametrize("name", EMBEDDINGS)
def test_gradients_are_finite_with_missing_numbers_and_reach_all_parameters(name: str) -> None:
    numbers = torch.randn(40, 3)
    tokens = WithMissing(make_embedding(name, numbers), columns=3, dim=8)
    numbers[torch.rand(40, 3) < 0.3] = torch.nan
    numbers[:3] = torch.eye(3).masked_fill(torch.eye(3) == 1, torch.nan)  # every column has a missing number
    tokens(numbers).square().sum().backward()
    for parameter_name, parameter in tokens.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all() and parameter.grad.any(), parameter_name


@pytest.mark.parametrize("name", EMBEDDINGS)
def test_columns_are_embedded_independently(name: str) -> None:
    numbers = torch.randn(10, 3)
    tokens = make_embedding(name, numbers)
    changed = numbers.clone()
    changed[:, 1] += 0.5
    assert_close(tokens(changed)[:, [0, 2]], tokens(numbers)[:, [0, 2]], rtol=0, atol=0)
    assert (tokens(changed)[:, 1] != tokens(numbers)[:, 1]).any()


def test_edges_are_a_buffer_in_the_state_dict() -> None:
    numbers = torch.randn(50, 2)
    tokens = PiecewiseLinearEmbedding(compute_bins(numbers, max_bins=4), 8)
    assert "edges" in tokens.state_dict() and "edges" not in dict(tokens.named_parameters())


def test_invalid_arguments_raise_an_error() -> None:
    with pytest.raises(ConfigError, match="edges must be at least two ascending numbers per column: use compute_bins"):
        PiecewiseLinearEmbedding(torch.tensor([[1.0, 0.0]]), 8)
    with pytest.raises(ConfigError, match="max_bins must be at least 1, got 0"):
        compute_bins(torch.randn(5, 1), max_bins=0)
    with pytest.raises(ConfigError, match=r"expected frequencies >= 1 and sigma > 0, got 3 and 0\.0"):
        PeriodicEmbedding(2, 8, frequencies=3, sigma=0.0)
    for tokens in (PiecewiseLinearEmbedding(torch.tensor([[0.0, 1.0]] * 3), 8), PeriodicEmbedding(3, 8)):
        with pytest.raises(ShapeError, match="expected 3 numeric columns, got 1"):
            tokens(torch.randn(5, 1))


def test_a_very_frequent_number_leaves_bins_for_the_others() -> None:
    generator = torch.Generator().manual_seed(0)
    gains = torch.cat([torch.zeros(900), torch.rand(100, generator=generator) + 1])
    edges = compute_bins(gains[:, None], max_bins=20)[0]
    assert (edges == 0).sum() == 1
    assert len(edges.unique()) == 21
