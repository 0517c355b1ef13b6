"""Tiles, overviews and lanes of a map are those of the dense map."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, max_pool2d
from torch.testing import assert_close

from softlook import masks
from softlook.base.errors import ConfigError, ShapeError
from softlook.blocks import AttentionCore
from softlook.blocks.kv_cache import KVCache
from softlook.lens import AttentionTrace, attention_maps, tiles, trace
from softlook.lens.trace import AttentionCall
from softlook.models import GPT, GPTConfig
from tests.memory import LargestTensor

T, S = 70, 83


@pytest.fixture
def layer() -> AttentionTrace:
    torch.manual_seed(0)
    core = AttentionCore()
    with trace(torch.nn.ModuleDict({"core": core})) as recorded:
        core(3 * torch.randn(2, 4, T, 8), *torch.randn(2, 2, 2, S, 8), masks.window(40, 3))
    return recorded["core"]


def pool_dense(weights: Tensor, height: int, width: int, pool: str) -> Tensor:
    """Pooling with smaller cells at the edges."""
    if pool == "max":
        return max_pool2d(weights, (height, width), ceil_mode=True)
    return avg_pool2d(weights, (height, width), ceil_mode=True, count_include_pad=False)


@pytest.mark.parametrize("pool", ["max", "mean"])
@pytest.mark.parametrize("level", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("elements", [64, 1 << 20])
def test_the_tiles_of_a_level_are_the_pooled_map(
    layer: AttentionTrace, pool: tiles.Pool, level: int, elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiles, "STRIP_ELEMENTS", elements)  # a strip is part of a row of cells, or several rows
    cell = 1 << level
    expected = pool_dense(layer.weights()[:, 1:3], cell, cell, pool)
    down, across = (-(-length // (16 * cell)) for length in (T, S))
    rows = [
        torch.cat([layer.tile(level, i, j, heads=slice(1, 3), size=16, pool=pool) for j in range(across)], 3)
        for i in range(down)
    ]
    assert_close(torch.cat(rows, 2), expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("pool", ["max", "mean"])
def test_an_overview_pools_the_whole_map(layer: AttentionTrace, pool: tiles.Pool) -> None:
    overview = layer.overview(size=20, pool=pool)
    assert overview.shape == (2, 4, 18, 17)
    assert_close(overview, pool_dense(layer.weights(), 4, 5, pool), atol=1e-6, rtol=1e-5)
    assert_close(layer.overview(size=100, pool=pool), layer.weights())


def test_an_overview_without_pooling_samples_the_map(layer: AttentionTrace) -> None:
    assert_close(layer.overview(heads=slice(3, 4), size=20, pool=None), layer.weights()[:, 3:, ::4, ::5])


def test_a_strip_is_smaller_than_the_map(layer: AttentionTrace, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(tiles, "STRIP_ELEMENTS", 1000)

    def weights(rows: slice, columns: slice) -> Tensor:
        part = layer.weights(rows=rows, columns=columns)
        sizes.append(part.numel())
        return part

    tiles.pool_map(weights, range(T), range(S), cell=(16, 16), pool="max", maps=8)
    assert max(sizes) <= 1000 and sum(sizes) == 8 * T * S


def test_tiles_outside_of_the_map_and_unknown_pools_are_errors(layer: AttentionTrace) -> None:
    for place in ((0, 5, 0), (1, 0, 3), (0, -1, 0), (-1, 0, 0)):
        with pytest.raises(ShapeError, match="of a map of 70 queries and 83 keys has no tile"):
            layer.tile(*place, size=16)
    with pytest.raises(ConfigError, match="pool must be one of max, mean, got 'sum'"):
        layer.overview(pool="sum")  # pyright: ignore[reportArgumentType]


def test_lanes_are_statistics_of_the_dense_map(layer: AttentionTrace) -> None:
    weights, lanes = layer.weights()[:, 1:3], layer.lanes(heads=slice(1, 3), top_k=3)
    assert_close(lanes["entropy"], -torch.xlogy(weights, weights).sum(-1), atol=1e-5, rtol=1e-4)
    assert_close(lanes["max_weight"], weights.amax(-1))
    assert_close(lanes["received"], weights.sum(2), atol=1e-5, rtol=1e-4)
    assert_close(lanes["top_weights"], weights.topk(3).values)
    distance = (torch.arange(T)[:, None] + S - T - torch.arange(S)).abs()
    assert_close(lanes["mean_distance"], (weights * distance).sum(-1), atol=1e-4, rtol=1e-4)
    assert_close(lanes["lse"], layer.lse[:, 1:3])


def test_lanes_and_tiles_of_a_generation_are_those_of_the_whole_text() -> None:
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=20, context=64, dim=32, depth=2, heads=4)).eval()
    ids, cache = torch.randint(20, (1, 60)), KVCache()
    with torch.no_grad(), trace(model) as steps:
        for part in ids.split([20, 1, 1, 30, 8], 1):
            model(part, cache=cache)
    with torch.no_grad(), trace(model) as whole:
        model(ids)
    for path, weights in attention_maps(model, ids).items():
        assert_close(steps[path].tile(2, 0, 0), pool_dense(weights, 4, 4, "max"), atol=1e-6, rtol=1e-4)
        for name, lane in whole[path].lanes().items():
            if name != "top_indices":  # tied weights of 0 have any order
                assert_close(steps[path].lanes()[name], lane, atol=1e-4, rtol=1e-4)


def test_no_part_of_a_long_map_needs_memory_for_the_map() -> None:
    torch.manual_seed(0)
    N = 8192
    core = AttentionCore()
    query, key, value = torch.randn(3, 1, 2, N, 8, requires_grad=True)
    with trace(torch.nn.ModuleDict({"core": core}), grad=True) as recorded:
        output = core(query, key, value, masks.causal())
    layer, one = recorded["core"], slice(0, 1)
    with LargestTensor() as largest:
        layer.tile(4, 1, 0, heads=one, size=64)
        layer.overview(heads=one, size=128, pool=None)
        layer.weights(heads=one, rows=slice(0, None, 64), columns=slice(5, 6))
        layer.gradient_times_attention(output[0, 0, -1, 0], heads=one, rows=slice(N - 8, N))
        layer.lanes(heads=one)
    assert largest.elements <= 1 << 21, largest.name  # of 1 << 26


def test_a_few_queries_of_a_long_map_have_the_weights_of_the_whole_map_without_its_log_sum_exp() -> None:
    torch.manual_seed(0)
    N, core = 3000, AttentionCore(sink=torch.tensor([0.5, 1.0]))
    query, key = torch.randn(2, 1, 2, N, 8)
    whole, part = (
        AttentionTrace([AttentionCall(core, query, key, masks.causal(), None, key.norm(dim=-1))]) for _ in range(2)
    )
    some = part.weights(heads=slice(1, 2), rows=slice(7, None, 100))
    assert part.calls[0]._known_lse[1].isnan().any()
    assert_close(some, whole.weights()[:, 1:2, 7::100])
    assert_close(part.lse, whole.lse)
