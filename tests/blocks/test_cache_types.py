"""Every type of KV cache gives the outputs of a forward pass without a cache."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from softlook.base.errors import ConfigError, ShapeError
from softlook.blocks import BeamCache, DynamicCache, KVCache, QuantizedCache, SlidingWindowCache, StaticCache
from softlook.blocks.kv_cache import BeamLayer, LayerCache
from softlook.models import Llama, LlamaConfig
from softlook.ops.masks import dense

EXACT: dict[str, Callable[[], KVCache]] = {
    "dynamic": lambda: KVCache(DynamicCache),
    "static": lambda: KVCache(lambda: StaticCache(9)),
    "sliding": lambda: KVCache(lambda: SlidingWindowCache(4)),
    "beam": BeamCache,
}
IDS = torch.tensor([[3, 1, 4, 1, 5, 8, 2, 6, 5], [2, 7, 1, 8, 2, 8, 1, 8, 2]])


def model(window: int | None = 4) -> Llama:
    torch.manual_seed(0)
    return Llama(
        LlamaConfig(vocab_size=9, context=16, dim=16, depth=2, heads=4, kv_heads=2, sliding_window=window)
    ).eval()


def spans(sizes: tuple[int, ...]) -> list[tuple[int, int]]:
    return [(sum(sizes[:i]), sum(sizes[: i + 1])) for i in range(len(sizes))]


@pytest.mark.parametrize("sizes", [(1,) * 9, (3, 1, 5), (6, 3), (9,)], ids=str)
@pytest.mark.parametrize("kind", EXACT)
@torch.no_grad()
def test_token_by_token_or_in_chunks_logits_equal_those_of_one_pass(kind: str, sizes: tuple[int, ...]) -> None:
    llama, cache = model(), EXACT[kind]()
    logits = [llama(IDS[:, start:stop], cache=cache) for start, stop in spans(sizes)]
    assert_close(torch.cat(logits, 1), llama(IDS))
    assert cache.length == 9


@pytest.mark.parametrize("kind", EXACT)
@torch.no_grad()
def test_rows_may_be_dropped_copied_and_reordered(kind: str) -> None:
    llama, cache, rows = model(), EXACT[kind](), torch.tensor([1, 0, 1])
    llama(IDS[:, :5], cache=cache)
    cache.reorder(rows)
    assert_close(llama(IDS[rows, 5:6], cache=cache), llama(IDS[rows, :6])[:, -1:])
    cache.reorder(torch.tensor([1, 1, 2]))  # the same number of rows: static caches reorder in place
    expected = IDS[rows[[1, 1, 2]]]
    assert_close(llama(expected[:, 6:7], cache=cache), llama(expected[:, :7])[:, -1:])


@pytest.mark.parametrize("kind", EXACT)
@torch.no_grad()
def test_cropped_positions_leave_no_trace(kind: str) -> None:
    llama, cache = model(), EXACT[kind]()
    llama(IDS[:, :3], cache=cache)
    cache.crop(2)
    assert_close(llama(IDS[:, 1:4], cache=cache), llama(IDS[:, :4])[:, 1:])
    with pytest.raises(ShapeError, match="cannot crop 5 positions of a cache of length 4"):
        cache.crop(5)


@torch.no_grad()
def test_positions_that_left_the_window_cannot_be_restored_by_cropping() -> None:
    cache = SlidingWindowCache(3)
    key = torch.randn(1, 1, 6, 4)
    cache.update(key, key)
    with pytest.raises(ShapeError, match="cannot crop 1 positions: the positions before them have left the window"):
        cache.crop(1)


@torch.no_grad()
def test_the_error_of_int8_is_at_most_half_a_quantization_step_per_head_and_token() -> None:
    torch.manual_seed(0)
    cache, key, value = QuantizedCache(), *torch.randn(2, 2, 3, 50, 8)
    kept = key, value
    for start in range(0, 50, 10):
        kept = cache.update(key[:, :, start : start + 10], value[:, :, start : start + 10])
    for got, expected in zip(kept, (key, value), strict=True):
        assert ((got - expected).abs() <= expected.abs().amax(-1, keepdim=True) / 254 * 1.001).all()
    assert cache.buffers is not None and cache.buffers[0].dtype == torch.int8


@torch.no_grad()
def test_a_quantized_cache_gives_nearly_the_same_logits_after_reordering() -> None:
    llama, cache, rows = model(None), KVCache(QuantizedCache), torch.tensor([1, 1, 0])
    llama(IDS[:, :5], cache=cache)
    cache.reorder(rows)
    cache.crop(1)
    got, expected = llama(IDS[rows, 4:7], cache=cache), llama(IDS[rows, :7])[:, -3:]
    assert_close(got, expected, atol=0.02, rtol=0)
    assert not torch.equal(got, expected)


@torch.no_grad()
def test_zeros_are_quantized_exactly() -> None:
    zeros = torch.zeros(1, 1, 2, 4)
    assert QuantizedCache().update(zeros, zeros)[0].equal(zeros)


@torch.no_grad()
def test_with_positions_in_a_tensor_every_step_runs_the_same_operations() -> None:
    llama, position = model(None), torch.zeros(1, dtype=torch.long)
    cache, expected = KVCache(lambda: StaticCache(9, position)), llama(IDS)
    buffers: list[Tensor] = []
    for step in range(9):
        position.fill_(step)
        mask = dense((torch.arange(9) <= position)[None])
        logits = llama(IDS[:, step : step + 1], cache=cache, mask=mask, positions=position)
        assert_close(logits, expected[:, step : step + 1])
        layer = cache.layers[0]
        assert isinstance(layer, StaticCache) and layer.buffer is not None
        buffers.append(layer.buffer[0])
    assert len({buffer.data_ptr() for buffer in buffers}) == 1


@torch.no_grad()
def test_a_static_cache_reorders_rows_in_place() -> None:
    cache, key = StaticCache(4), torch.randn(3, 1, 2, 4)
    cache.update(key, key)
    assert cache.buffer is not None
    address = cache.buffer[0].data_ptr()
    cache.reorder(torch.tensor([0, 2, 2]))
    empty = torch.empty(3, 1, 0, 4)
    assert_close(cache.update(empty, empty)[0], key[[0, 2, 2]])
    assert cache.buffer[0].data_ptr() == address


@pytest.mark.parametrize(
    "make",
    [DynamicCache, lambda: StaticCache(4), lambda: SlidingWindowCache(4), QuantizedCache],
    ids=["dynamic", "static", "sliding", "quantized"],
)
def test_beams_share_the_keys_and_values_of_the_encoder(make: Callable[[], BeamLayer]) -> None:
    cache, (key, value), other = make(), torch.randn(2, 2, 1, 2, 4), torch.randn(2, 1, 3, 4)
    assert isinstance(cache, LayerCache) and isinstance(cache, BeamLayer)
    cache.update(key, value)
    cache.cross_kv(lambda: (other, other))
    cache.reorder_beams(torch.tensor([0, 0, 1, 1]))
    assert cache.cross_kv(lambda: (key, key))[0] is other  # neither copied nor recomputed
    cache.reorder_beams(torch.tensor([3, 2]), torch.tensor([1]))
    assert_close(cache.cross_kv(lambda: (key, key))[0], other[1:])


def test_caches_that_are_too_small_raise_an_error() -> None:
    key = torch.randn(1, 1, 5, 4)
    with pytest.raises(ShapeError, match=r"a cache of capacity 4 cannot hold 5 positions\. Use a larger capacity\."):
        StaticCache(4).update(key, key)
    with pytest.raises(ConfigError, match="the capacity of a cache must be at least 1, got 0"):
        StaticCache(0)
    with pytest.raises(ConfigError, match=r"a window must be at least 1 \(the token itself\), got 0"):
        SlidingWindowCache(0)
