"""The KV cache of a decoder."""

import pytest
import torch
from torch.testing import assert_close

from softlook.base.errors import ShapeError
from softlook.blocks.kv_cache import DynamicCache, KVCache, LayerCache, layer_caches, token_positions


def pair(length: int) -> tuple[torch.Tensor, torch.Tensor]:
    key, value = torch.randn(2, 1, 3, length, 4)
    return key, value


def test_a_dynamic_cache_returns_all_keys_and_values_in_order() -> None:
    cache, first, second = DynamicCache(), pair(2), pair(3)
    assert cache.length == 0
    for one, other in zip(cache.update(*first), first, strict=True):
        assert_close(one, other)
    for whole, one, other in zip(cache.update(*second), first, second, strict=True):
        assert_close(whole, torch.cat([one, other], 2))
    assert cache.length == 5


def test_cross_attention_keys_and_values_are_computed_once() -> None:
    cache, pairs = DynamicCache(), [pair(2), pair(2)]
    first = cache.cross_kv(lambda: pairs[0])
    assert cache.cross_kv(lambda: pairs[1]) is first


def test_every_layer_has_its_own_cache() -> None:
    cache = KVCache()
    layers = cache.allocate(3)
    assert len({id(layer) for layer in layers}) == 3
    assert [id(layer) for layer in cache.allocate(3)] == [id(layer) for layer in layers]
    assert all(isinstance(layer, LayerCache) for layer in layers)
    assert layer_caches(None, 2) == [None, None]


def test_default_positions_continue_after_the_cached_positions() -> None:
    cache, ids = KVCache(), torch.zeros(1, 3, dtype=torch.long)
    assert token_positions(ids, None, None).tolist() == [0, 1, 2]
    cache.allocate(1)[0].update(*pair(4))
    assert token_positions(ids, None, cache).tolist() == [4, 5, 6]
    assert token_positions(ids, torch.tensor([7, 7, 8]), cache).tolist() == [7, 7, 8]


def test_rows_can_be_dropped_copied_and_reordered() -> None:
    cache = KVCache()
    layer, (key, value) = cache.allocate(1)[0], torch.randn(2, 3, 1, 2, 4)
    layer.update(key, value)
    layer.cross_kv(lambda: (key, value))
    rows = torch.tensor([2, 0, 0, 2])
    cache.reorder(rows)
    empty = torch.empty(4, 1, 0, 4)
    for kept in (layer.update(empty, empty), layer.cross_kv(lambda: (empty, empty))):
        assert_close(kept[0], key[rows])
        assert_close(kept[1], value[rows])


def test_crop_removes_the_last_positions_and_keeps_cross_attention_keys_and_values() -> None:
    cache, first, second, other = DynamicCache(), pair(3), pair(2), pair(4)
    cache.cross_kv(lambda: other)
    cache.update(*first)
    cache.crop(2)
    assert cache.length == 1
    for whole, one, new in zip(cache.update(*second), first, second, strict=True):
        assert_close(whole, torch.cat([one[:, :, :1], new], 2))
    assert cache.cross_kv(lambda: pair(1)) is other


def test_crop_applies_to_every_layer_and_rejects_more_positions_than_cached() -> None:
    cache = KVCache()
    for layer in cache.allocate(2):
        layer.update(*pair(3))
    cache.crop(3)
    assert [layer.length for layer in cache.layers] == [0, 0]
    with pytest.raises(ShapeError, match="cannot crop 1 positions of a cache of length 0"):
        cache.crop(1)
