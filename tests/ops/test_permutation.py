"""Permutation equivariance and invariance of attention, and what breaks them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from softlook import ShapeError, masks
from softlook.blocks import FeedForward, PreNormBlock, SelfAttention
from softlook.embed import TokenEmbedding
from softlook.models import GPT, GPTConfig
from softlook.ops.permutation import equivariance_gap, invariance_gap, permute

SUSAN = torch.tensor([[0, 1, 2, 3, 4]])  # Susan gave roses to Mary
SWAP = torch.tensor([4, 1, 2, 3, 0])  # Mary gave roses to Susan
GAVE = 1
ROUNDING = 1e-5


def block() -> PreNormBlock:
    return PreNormBlock(SelfAttention(8, heads=2), FeedForward(8), lambda: nn.LayerNorm(8))


@settings(max_examples=40)
@given(st.permutations(range(6)))
def test_a_permutation_and_its_inverse_change_nothing(order: list[int]) -> None:
    x, permutation = torch.randn(2, 6, 3), torch.tensor(order)
    assert_close(permute(permute(x, permutation), permutation.argsort()), x, rtol=0, atol=0)


def test_the_output_of_a_token_depends_on_the_order_only_with_position_embeddings() -> None:
    embedding, attn, positions = TokenEmbedding(5, 8), SelfAttention(8, heads=2), torch.randn(5, 8)
    sentence, swapped = embedding(SUSAN), embedding(permute(SUSAN, SWAP))
    assert_close(attn(sentence)[:, GAVE], attn(swapped)[:, GAVE])
    difference = attn(sentence + positions)[:, GAVE] - attn(swapped + positions)[:, GAVE]
    assert difference.abs().max() > 1e-3


@settings(max_examples=40)
@given(st.permutations(range(6)))
def test_a_stack_of_blocks_is_equivariant_and_with_mean_pooling_invariant(order: list[int]) -> None:
    model, x = nn.Sequential(block(), block()), torch.randn(2, 6, 8)
    assert equivariance_gap(model, x, torch.tensor(order)) < ROUNDING
    assert invariance_gap(lambda x: model(x).mean(1), x, torch.tensor(order)) < ROUNDING


def test_a_causal_mask_breaks_equivariance() -> None:
    attn, x = SelfAttention(8, heads=2), torch.randn(2, 5, 8)
    assert equivariance_gap(lambda x: attn(x, mask=masks.causal()), x, SWAP) > 1e-3
    assert invariance_gap(lambda x: attn(x).cumsum(1), x, SWAP) > 1e-3


def test_models_of_token_ids_can_be_tested() -> None:
    model = GPT(GPTConfig(vocab_size=5, context=8, dim=16, depth=1, heads=2)).eval()
    assert equivariance_gap(model, SUSAN, SWAP) > 1e-3


def test_the_gap_is_the_largest_difference() -> None:
    def add_position(x: Tensor) -> Tensor:
        return x + torch.arange(5.0)

    assert equivariance_gap(add_position, torch.zeros(1, 5), SWAP) == 4.0


def test_elements_along_another_axis_are_permuted() -> None:
    x = torch.randn(5, 3)
    assert_close(permute(x, SWAP, axis=0)[0], x[4])


@pytest.mark.parametrize("order", [[0, 1], [0, 0, 1], [1, 2, 3]])
def test_an_invalid_order_raises_an_error(order: list[int]) -> None:
    with pytest.raises(ShapeError, match="order expects a permutation of 0 to 2"):
        permute(torch.randn(1, 3, 2), torch.tensor(order))


def test_an_output_that_changes_its_shape_raises_an_error() -> None:
    with pytest.raises(ShapeError, match="output's shape depends on the order"):
        invariance_gap(lambda x: x[: int(x[0, 0]) + 1], torch.tensor([[0.0, 1.0]]).repeat(3, 1), torch.tensor([1, 0]))
