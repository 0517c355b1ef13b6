"""Product-key memory: exact search, sparse gradients and slot usage."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from softlook.base.errors import ConfigError
from softlook.blocks import PreNormBlock, ProductKeyMemory, SelfAttention, usage, watch_usage
from softlook.blocks.product_key import ProductKeys, SelectedSlots, slot_weights


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def all_scores(keys: ProductKeys, query: Tensor) -> Tensor:
    """The scores of all slots, with all keys materialized: (N, H, slots)."""
    first, second = keys.subkeys.unbind(1)
    heads, n_subkeys, _ = first.shape
    whole = torch.cat(
        [first[:, :, None].expand(-1, -1, n_subkeys, -1), second[:, None].expand(-1, n_subkeys, -1, -1)], -1
    ).reshape(heads, n_subkeys**2, -1)
    return torch.einsum("nhd,hsd->nhs", query, whole)


@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 9), st.data())
def test_the_best_keys_are_found_among_all_keys(heads: int, half: int, n_subkeys: int, data: st.DataObject) -> None:
    top_k = data.draw(st.integers(1, n_subkeys), label="top_k")
    keys, query = ProductKeys(heads, 2 * half, n_subkeys=n_subkeys, top_k=top_k).double(), normal(5, heads, 2 * half)
    found, scores = keys(query), all_scores(keys, query)
    best, indices = scores.topk(top_k)
    assert torch.equal(found.slots, indices)
    assert_close(found.weights, best.softmax(-1))


def test_tied_keys_are_selected_once_each() -> None:
    keys, query = ProductKeys(2, 4, n_subkeys=6, top_k=3).double(), normal(4, 2, 4)
    with torch.no_grad():
        keys.subkeys.copy_(keys.subkeys.round())
    found, scores = keys(query.round()), all_scores(keys, query.round())
    assert_close(scores.gather(-1, found.slots), scores.topk(3).values)
    assert all(len(set(row)) == 3 for row in found.slots.flatten(0, 1).tolist())


def test_the_output_is_the_weighted_sum_of_values_over_all_heads() -> None:
    memory, x = ProductKeyMemory(6, heads=3, n_subkeys=5, top_k=4, query_dim=8, norm=False).double(), normal(2, 3, 6)
    query = memory.to_query(x).unflatten(-1, (3, 8)).flatten(0, 1)
    best, indices = all_scores(memory.keys, query).topk(4)
    sparse = torch.zeros(6, 3, 25, dtype=torch.float64).scatter(-1, indices, best.softmax(-1))
    expected = (sparse @ memory.values.weight).sum(1).view(2, 3, 6)
    assert_close(memory(x), expected)


def test_queries_are_batch_normalized_in_training() -> None:
    memory, x = ProductKeyMemory(6, heads=2, n_subkeys=5, top_k=2, query_dim=4).double().train(), normal(40, 6) * 7 + 3
    seen: list[Tensor] = []
    memory.keys.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    memory(x)
    assert_close(seen[0].mean(0), torch.zeros(2, 4, dtype=torch.float64))
    assert_close(seen[0].var(0, unbiased=False), torch.ones(2, 4, dtype=torch.float64), rtol=1e-3, atol=1e-3)
    memory.eval()
    assert_close(memory(x)[:1], memory(x[:1]))


def test_a_product_key_memory_can_replace_a_feed_forward_layer() -> None:
    memory = ProductKeyMemory(8, heads=2, n_subkeys=4, top_k=2)
    block = PreNormBlock(SelfAttention(8, heads=2), memory, lambda: nn.LayerNorm(8))
    x = torch.randn(2, 5, 8)
    output = block(x)
    assert output.shape == x.shape
    output.square().sum().backward()
    for name, parameter in block.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
    assert memory.keys.subkeys.grad is not None and memory.keys.subkeys.grad.abs().max() > 0


@pytest.mark.parametrize("sparse", [False, True])
def test_only_selected_slots_get_a_gradient(sparse: bool) -> None:
    memory = ProductKeyMemory(6, heads=2, n_subkeys=5, top_k=2, sparse=sparse)
    with watch_usage(memory) as tally:
        memory(torch.randn(3, 6)).sum().backward()
    gradient = memory.values.weight.grad
    assert gradient is not None and gradient.is_sparse == sparse
    touched = gradient.to_dense().abs().sum(-1) > 0
    assert torch.equal(touched, tally.weights > 0)


def test_usage_is_accumulated_over_several_calls() -> None:
    memory = ProductKeyMemory(6, heads=2, n_subkeys=5, top_k=3).eval()
    kept: list[SelectedSlots] = []
    memory.keys.register_forward_hook(lambda module, args, found: kept.append(found))  # pyright: ignore
    with watch_usage(memory) as tally:
        memory(torch.randn(2, 7, 6))
        memory(torch.randn(4, 6))
    memory(torch.randn(4, 6))  # outside the context manager: not counted
    expected = torch.zeros(25, dtype=torch.float64)
    for found in kept[:2]:
        for slot, weight in zip(found.slots.flatten().tolist(), found.weights.flatten().tolist(), strict=True):
            expected[slot] += weight
    assert_close(tally.weights, expected)
    assert_close(tally.weights.sum().item(), 2.0 * (2 * 7 + 4), rtol=1e-6, atol=0.0)
    assert tally.usage() == usage(tally.weights)


@pytest.mark.parametrize(
    ("weights", "fraction", "divergence", "perplexity"),
    [
        ([1.0, 1.0, 1.0, 1.0], 1.0, 0.0, 4.0),
        ([0.0, 5.0, 0.0, 0.0], 0.25, math.log(4), 1.0),
        ([3.0, 1.0, 0.0, 0.0], 0.5, math.log(4) - (0.75 * math.log(4 / 3) + 0.25 * math.log(4)), None),
    ],
)
def test_usage_has_fraction_divergence_and_perplexity(
    weights: list[float], fraction: float, divergence: float, perplexity: float | None
) -> None:
    found = usage(torch.tensor(weights))
    assert found.fraction_used == fraction
    assert found.divergence == pytest.approx(divergence, abs=1e-12)
    assert found.perplexity == pytest.approx(4 / math.exp(divergence) if perplexity is None else perplexity)


def test_the_usage_of_an_unused_memory_raises_an_error() -> None:
    with pytest.raises(ValueError, match="no slot has any weight: call the memory first"):
        usage(torch.zeros(4))


def test_slot_weights_are_summed_over_queries_and_heads() -> None:
    found = SelectedSlots(torch.tensor([[[1, 0]], [[1, 2]]]), torch.tensor([[[0.5, 0.5]], [[0.75, 0.25]]]))
    assert slot_weights(found, 4).tolist() == [0.5, 1.25, 0.25, 0.0]


def test_an_odd_query_dim_raises_an_error() -> None:
    with pytest.raises(ConfigError, match="query_dim must be even, got 7"):
        ProductKeyMemory(6, heads=1, n_subkeys=4, top_k=2, query_dim=7)


def test_top_k_above_the_number_of_subkeys_raises_an_error() -> None:
    with pytest.raises(ConfigError, match="top_k must be from 1 to n_subkeys = 4, got 5"):
        ProductKeyMemory(6, heads=1, n_subkeys=4, top_k=5)
