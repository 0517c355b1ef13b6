"""Numbers as tokens that bend, and tokens for what is missing."""

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

FEW = settings(max_examples=40)
some_numbers = st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=30)
KINDS = ("piecewise", "bending", "periodic", "lite", "linear")


def tokens_of(kind: str, numbers: Tensor, dim: int = 8) -> nn.Module:
    columns = numbers.shape[1]
    if kind in ("piecewise", "bending"):
        return PiecewiseLinearEmbedding(compute_bins(numbers, max_bins=6), dim, activation=kind == "bending")
    if kind in ("periodic", "lite"):
        return PeriodicEmbedding(columns, dim, frequencies=5, lite=kind == "lite")
    return LinearFeatureEmbedding(columns, dim)


def by_the_book(x: float, edges: list[float]) -> list[float]:
    """The encoding of one number, bin by bin, written down plainly; `edges` are all different."""
    filled = []
    for low, high in zip(edges[:-1], edges[1:], strict=True):
        filled.append(0.0 if x < low else 1.0 if x >= high else (x - low) / (high - low))
    return filled


@FEW
@given(some_numbers, st.integers(1, 9))
def test_a_number_fills_the_bins_as_the_formula_says(numbers: list[float], most: int) -> None:
    column = torch.tensor(numbers, dtype=torch.float64)[:, None]
    edges = compute_bins(column, max_bins=most)
    different = edges[0].unique().tolist()
    wanted = [by_the_book(x, different) + [0.0] * (most + 1 - len(different)) for x in column[:, 0].tolist()]
    assert_close(
        piecewise_linear_encoding(column, edges)[:, 0], torch.tensor(wanted, dtype=torch.float64).view(-1, most)
    )


@FEW
@given(some_numbers, st.integers(1, 9))
def test_at_an_edge_every_bin_is_full_or_empty_and_a_larger_number_fills_no_bin_less(
    numbers: list[float], most: int
) -> None:
    edges = compute_bins(torch.tensor(numbers)[:, None], max_bins=most)
    at_edges = piecewise_linear_encoding(edges.T, edges)[:, 0]
    assert ((at_edges == 0) | (at_edges == 1)).all()
    assert at_edges[-1].sum() == len(edges.unique()) - 1  # at the last edge all bins are full
    rising = torch.linspace(-120, 120, 50)[:, None]
    assert (piecewise_linear_encoding(rising, edges).diff(dim=0) >= 0).all()


@FEW
@given(st.lists(st.floats(-100, 100, width=32), min_size=60, max_size=90, unique=True), st.integers(1, 9))
def test_edges_are_quantiles_where_there_are_many_numbers(numbers: list[float], most: int) -> None:
    edges = compute_bins(torch.tensor(numbers, dtype=torch.float64)[:, None], max_bins=most)
    assert_close(edges[0], torch.from_numpy(np.quantile(numbers, np.linspace(0, 1, most + 1))))


def test_few_different_numbers_are_an_edge_each_however_rare() -> None:
    column = torch.tensor([0.0] * 500 + [7.0] + [9.0] * 500)[:, None]
    assert compute_bins(column, max_bins=3).tolist() == [[0.0, 7.0, 9.0, 9.0]]


def test_missing_numbers_do_not_move_an_edge() -> None:
    numbers = torch.randn(200, 2)
    gaps = torch.cat([numbers, torch.full((50, 2), torch.nan)])
    assert_close(compute_bins(gaps, max_bins=7), compute_bins(numbers, max_bins=7), rtol=0, atol=0)


@pytest.mark.parametrize("value", [3.0, torch.nan], ids=["constant", "all missing"])
def test_a_column_that_says_nothing_has_no_bins_and_a_token_all_the_same(value: float) -> None:
    numbers = torch.full((5, 1), value)
    edges = compute_bins(numbers, max_bins=4)
    assert edges.shape == (1, 5) and len(edges.unique()) == 1
    tokens = WithMissing(PiecewiseLinearEmbedding(edges, 8), columns=1, dim=8)(numbers)
    assert tokens.isfinite().all()
    assert_close(tokens, tokens[:1].expand_as(tokens))


def test_no_rows_and_no_columns_are_no_trouble() -> None:
    assert compute_bins(torch.empty(0, 2), max_bins=4).tolist() == [[0.0] * 5] * 2
    assert compute_bins(torch.empty(5, 0), max_bins=4).shape == (0, 5)
    assert PiecewiseLinearEmbedding(compute_bins(torch.empty(5, 0), max_bins=4), 8)(torch.empty(5, 0)).shape == (
        5,
        0,
        8,
    )
    assert PeriodicEmbedding(0, 8)(torch.empty(5, 0)).shape == (5, 0, 8)


def test_outside_of_all_edges_a_token_stays_where_it_is() -> None:
    numbers = torch.randn(100, 1)
    tokens = PiecewiseLinearEmbedding(compute_bins(numbers, max_bins=6), 8)
    far = torch.tensor([[-torch.inf], [-1e30], [numbers.min()], [numbers.max()], [1e30], [torch.inf]])
    lowest, *_, highest = said = tokens(far)
    assert_close(said[:3], lowest.expand(3, 1, 8))
    assert_close(said[3:], highest.expand(3, 1, 8))


def test_waves_are_those_of_the_formula() -> None:
    tokens, x = PeriodicEmbedding(2, 8, frequencies=3), torch.randn(4, 2)
    for column in range(2):
        angle = 2 * torch.pi * x[:, column, None] * tokens.frequencies[column]
        wanted = torch.cat([angle.cos(), angle.sin()], 1) @ tokens.weight[column] + tokens.bias[column]
        assert_close(tokens(x)[:, column], wanted.relu(), rtol=1e-5, atol=1e-6)


def test_lite_waves_share_their_map_and_keep_their_frequencies() -> None:
    tokens = PeriodicEmbedding(3, 8, frequencies=5, lite=True)
    assert tokens.frequencies.shape == (3, 5) and tokens.weight.shape == (10, 8)


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_number_changes_its_own_token_and_no_other(kind: str) -> None:
    numbers = torch.randn(20, 3)
    tokens = WithMissing(tokens_of(kind, numbers), columns=3, dim=8)
    gaps = numbers.clone()
    gaps[4, 1] = torch.nan
    there = ~gaps.isnan()
    assert_close(tokens(gaps)[there], tokens(numbers)[there], rtol=0, atol=0)
    assert_close(tokens(gaps)[4, 1], tokens.missing[1], rtol=0, atol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_finite_beside_missing_numbers_and_reach_everything(kind: str) -> None:
    numbers = torch.randn(40, 3)
    tokens = WithMissing(tokens_of(kind, numbers), columns=3, dim=8)
    numbers[torch.rand(40, 3) < 0.3] = torch.nan
    numbers[:3] = torch.eye(3).masked_fill(torch.eye(3) == 1, torch.nan)  # each column misses one at least
    tokens(numbers).square().sum().backward()
    for name, parameter in tokens.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all() and parameter.grad.any(), name


@pytest.mark.parametrize("kind", KINDS)
def test_columns_do_not_see_one_another(kind: str) -> None:
    numbers = torch.randn(10, 3)
    tokens = tokens_of(kind, numbers)
    changed = numbers.clone()
    changed[:, 1] += 0.5
    assert_close(tokens(changed)[:, [0, 2]], tokens(numbers)[:, [0, 2]], rtol=0, atol=0)
    assert (tokens(changed)[:, 1] != tokens(numbers)[:, 1]).any()


def test_edges_are_kept_with_the_weights_and_not_learned() -> None:
    numbers = torch.randn(50, 2)
    tokens = PiecewiseLinearEmbedding(compute_bins(numbers, max_bins=4), 8)
    assert "edges" in tokens.state_dict() and "edges" not in dict(tokens.named_parameters())


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigError, match="edges must be at least two ascending numbers per column: use compute_bins"):
        PiecewiseLinearEmbedding(torch.tensor([[1.0, 0.0]]), 8)
    with pytest.raises(ConfigError, match="max_bins must be at least 1, got 0"):
        compute_bins(torch.randn(5, 1), max_bins=0)
    with pytest.raises(ConfigError, match=r"expected frequencies >= 1 and sigma > 0, got 3 and 0\.0"):
        PeriodicEmbedding(2, 8, frequencies=3, sigma=0.0)
    for tokens in (PiecewiseLinearEmbedding(torch.tensor([[0.0, 1.0]] * 3), 8), PeriodicEmbedding(3, 8)):
        with pytest.raises(ShapeError, match="expected 3 numeric columns, got 1"):
            tokens(torch.randn(5, 1))


def test_a_number_that_most_have_leaves_bins_for_the_others() -> None:
    random = torch.Generator().manual_seed(0)
    gains = torch.cat([torch.zeros(900), torch.rand(100, generator=random) + 1])
    edges = compute_bins(gains[:, None], max_bins=20)[0]
    assert (edges == 0).sum() == 1
    assert len(edges.unique()) == 21
