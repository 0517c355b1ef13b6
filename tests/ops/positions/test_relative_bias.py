"""ALiBi and T5 biases, compared with their formulas and with Hugging Face."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.t5.modeling_t5 import T5Attention

from softlook import MaskError, attention, attention_scores, masks, positions
from softlook.ops.bias import Bias

SIZES = st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 9))


def _distances(T: int, S: int) -> torch.Tensor:
    return torch.arange(T)[:, None] + S - T - torch.arange(S)


def _bias_values(bias: Bias, H: int, T: int, S: int) -> torch.Tensor:
    query, key = torch.zeros(1, H, T, 2), torch.zeros(1, H, S, 2)
    return attention_scores(query, key, bias=bias)[0]


@given(SIZES)
def test_alibi_is_minus_slope_times_distance(sizes: tuple[int, int, int]) -> None:
    H, T, S = sizes
    slopes = torch.rand(H)
    torch.testing.assert_close(
        _bias_values(positions.alibi(slopes), H, T, S), -slopes[:, None, None] * _distances(T, S).abs()
    )


@pytest.mark.parametrize("heads", range(1, 34))
def test_slopes_for_any_number_of_heads_match_bloom(heads: int) -> None:
    expected = build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)[:, 0, 1]
    actual = -_bias_values(positions.alibi(heads), heads, 2, 2)[:, 1, 0]
    torch.testing.assert_close(actual, expected)


@given(SIZES, st.booleans(), st.integers(2, 6))
def test_t5_looks_up_its_bucket(sizes: tuple[int, int, int], bidirectional: bool, buckets: int) -> None:
    H, T, S = sizes
    table = torch.randn(4 * buckets, H)
    bias = positions.t5(table, bidirectional=bidirectional, max_distance=20)
    indices = T5Attention._relative_position_bucket(-_distances(T, S), bidirectional, 4 * buckets, 20)
    torch.testing.assert_close(_bias_values(bias, H, T, S), table[indices].permute(2, 0, 1))


@pytest.mark.parametrize("backend", ["reference", "tiled", "sdpa"])
def test_gradients_reach_slopes_and_tables(backend: str) -> None:
    query, key, value = torch.randn(3, 1, 4, 9, 8, dtype=torch.float64)
    slopes, table = torch.rand(4, dtype=torch.float64), torch.randn(8, 4, dtype=torch.float64)

    def call(slopes: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        bias = positions.alibi(slopes) + positions.t5(table, max_distance=10)
        return attention(query, key, value, mask=masks.causal(), bias=bias, backend=backend)  # pyright: ignore[reportArgumentType]

    assert torch.autograd.gradcheck(call, (slopes.requires_grad_(), table.requires_grad_()))


def test_a_bias_for_another_number_of_heads_raises_an_error() -> None:
    query = torch.randn(1, 4, 2, 8)
    with pytest.raises(MaskError, match="this alibi bias is for 3 heads, but the query has 4"):
        attention_scores(query, query, bias=positions.alibi(3))
    with pytest.raises(MaskError, match="this t5 bias is for 2 heads, but the query has 4"):
        attention_scores(query, query, bias=positions.t5(torch.zeros(8, 2)))


@given(SIZES, st.booleans())
def test_a_precomputed_bias_is_the_same_bias(sizes: tuple[int, int, int], small: bool) -> None:
    H, T, S = sizes
    bias = positions.t5(torch.randn(8, H), max_distance=20)
    shared = bias.precompute(H, T, S, torch.zeros(1)) if small else bias.precompute(H, T, (1 << 24) + 1, torch.zeros(1))
    assert shared.is_dense is small and not shared.may_mask
    torch.testing.assert_close(_bias_values(shared, H, T, S), _bias_values(bias, H, T, S))
