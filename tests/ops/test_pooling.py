"""Pooled attention maps: the mean and the maximum weight of each cell."""

import pytest
import torch

from softlook import attention_weights, look, masks
from softlook.ops.pooling import bin_edges
from tests.ops_cases import DEVICE, TensorRNG, close, small_tiles

RNG = TensorRNG(torch.Generator().manual_seed(17), torch.float64)


def test_bins_are_as_even_as_possible() -> None:
    assert bin_edges(8, 4) == [0, 2, 4, 6, 8]
    assert bin_edges(7, 3) == [0, 2, 4, 7]
    assert bin_edges(2, 64) == [0, 1, 2]
    assert bin_edges(1, 1) == [0, 1]
    assert bin_edges(0, 4) == [0, 0]


@pytest.mark.parametrize("length", [1, 5, 12, 97])
@pytest.mark.parametrize("bins", [1, 2, 5, 64])
def test_every_position_has_one_bin_and_no_bin_is_empty(length: int, bins: int) -> None:
    edges = bin_edges(length, bins)
    sizes = [stop - start for start, stop in zip(edges, edges[1:], strict=False)]
    assert edges[0] == 0 and edges[-1] == length and len(sizes) == min(length, bins)
    assert min(sizes) >= 1 and max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("lengths", [(8, 8), (8, 12), (7, 11), (3, 5), (1, 9)], ids=str)
@pytest.mark.parametrize("bins", [1, 3, 4, 20])
def test_cells_hold_the_mean_and_the_largest_weight(lengths: tuple[int, int], bins: int) -> None:
    T, S = lengths
    query, key = RNG.normal(2, 2, T, 3), RNG.normal(2, 2, S, 3)
    weights = attention_weights(query, key, mask=masks.causal())
    with small_tiles():
        tiled = look(query, key, mask=masks.causal(), stats=("pooled_mean", "pooled_max"), bins=bins)
    whole = look(query, key, mask=masks.causal(), stats=("pooled_mean", "pooled_max"), bins=bins)
    rows, columns = bin_edges(T, bins), bin_edges(S, bins)
    for a in range(len(rows) - 1):
        for b in range(len(columns) - 1):
            cell = weights[..., rows[a] : rows[a + 1], columns[b] : columns[b + 1]].flatten(-2)
            for seen in (whole, tiled):
                close(seen.pooled_mean[..., a, b], cell.mean(-1))
                close(seen.pooled_max[..., a, b], cell.amax(-1))


def test_each_pooled_map_can_be_requested_alone() -> None:
    query = RNG.normal(1, 1, 6, 3)
    both = look(query, query, stats=("pooled_mean", "pooled_max"), bins=2)
    close(look(query, query, stats=("pooled_mean",), bins=2).pooled_mean, both.pooled_mean)
    close(look(query, query, stats=("pooled_max",), bins=2).pooled_max, both.pooled_max)


def test_with_as_many_bins_as_positions_the_pooled_map_is_the_map() -> None:
    query = RNG.normal(1, 2, 6, 3)
    seen = look(query, query, stats=("pooled_mean", "pooled_max"), bins=6)
    close(seen.pooled_mean, attention_weights(query, query))
    close(seen.pooled_max, attention_weights(query, query))
    assert seen.pooled_mean.device.type == DEVICE.type
