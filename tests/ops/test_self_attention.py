"""Self-attention without parameters."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from softlook import ShapeError, masks, self_attention
from tests.ops_cases import DEVICE

SETS = st.tuples(st.integers(1, 3), st.integers(1, 8), st.integers(1, 5))


@given(SETS)
def test_each_output_is_a_weighted_sum_of_the_set(sizes: tuple[int, int, int]) -> None:
    x = torch.randn(sizes, device=DEVICE, dtype=torch.float64)
    products = x @ x.mT
    torch.testing.assert_close(self_attention(x), products.softmax(-1) @ x)
    torch.testing.assert_close(self_attention(x, softmax=False), products @ x)
    torch.testing.assert_close(self_attention(x, temperature=3.0), (products / 3).softmax(-1) @ x)


@given(SETS)
def test_permuting_the_set_permutes_the_outputs(sizes: tuple[int, int, int]) -> None:
    x = torch.randn(sizes, device=DEVICE, dtype=torch.float64)
    order = torch.randperm(sizes[1])
    torch.testing.assert_close(self_attention(x[:, order]), self_attention(x)[:, order])


@given(SETS)
def test_one_head_can_be_read_as_a_bilinear_form(sizes: tuple[int, int, int]) -> None:
    x = torch.randn(sizes, device=DEVICE, dtype=torch.float64)
    to_query, to_key, to_value = torch.randn(3, sizes[2], 4, device=DEVICE, dtype=torch.float64)
    head = ((x @ to_query) @ (x @ to_key).mT / 2).softmax(-1) @ (x @ to_value)
    torch.testing.assert_close(self_attention(x, form=to_query @ to_key.T / 2, to_value=to_value), head)


def test_a_single_set_needs_no_batch() -> None:
    x = torch.randn(5, 3, device=DEVICE)
    torch.testing.assert_close(self_attention(x), self_attention(x[None])[0])


def test_masked_elements_do_not_enter_the_unnormalized_sum() -> None:
    x = torch.randn(1, 4, 3, device=DEVICE, dtype=torch.float64)
    actual = self_attention(x, softmax=False, mask=masks.causal())
    torch.testing.assert_close(actual, (x @ x.mT).tril() @ x)


@pytest.mark.usefixtures("no_shape_checks")
def test_other_dimensions_raise_an_error() -> None:
    with pytest.raises(ShapeError, match=r"a set \(T, C\) or a batch of sets \(B, T, C\), got \(3,\)"):
        self_attention(torch.randn(3))
