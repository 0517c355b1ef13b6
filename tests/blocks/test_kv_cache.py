"""What a decoder keeps of the past."""

import pytest
import torch
from torch.testing import assert_close

from softlook.base.errors import ShapeError
from softlook.blocks.kv_cache import DynamicCache, KVCache, LayerCache, layer_caches, token_positions


def pair(length: int) -> tuple[torch.Tensor, torch.Tensor]:
    key, value = torch.randn(2, 1, 3, length, 4)
    return key, value


def test_a_growing_memory_gives_back_all_that_came_in_order() -> None:
    memory, first, second = DynamicCache(), pair(2), pair(3)
    assert memory.length == 0
    for one, other in zip(memory.update(*first), first, strict=True):
        assert_close(one, other)
    for whole, one, other in zip(memory.update(*second), first, second, strict=True):
        assert_close(whole, torch.cat([one, other], 2))
    assert memory.length == 5


def test_what_is_recalled_is_made_once() -> None:
    memory, made = DynamicCache(), [pair(2), pair(2)]
    first = memory.cross_kv(lambda: made[0])
    assert memory.cross_kv(lambda: made[1]) is first


def test_every_layer_has_a_memory_of_its_own_and_keeps_it() -> None:
    memory = KVCache()
    layers = memory.allocate(3)
    assert len({id(layer) for layer in layers}) == 3
    assert [id(layer) for layer in memory.allocate(3)] == [id(layer) for layer in layers]
    assert all(isinstance(layer, LayerCache) for layer in layers)
    assert layer_caches(None, 2) == [None, None]


def test_tokens_stand_behind_what_the_memory_holds_unless_told_otherwise() -> None:
    memory, ids = KVCache(), torch.zeros(1, 3, dtype=torch.long)
    assert token_positions(ids, None, None).tolist() == [0, 1, 2]
    memory.allocate(1)[0].update(*pair(4))
    assert token_positions(ids, None, memory).tolist() == [4, 5, 6]
    assert token_positions(ids, torch.tensor([7, 7, 8]), memory).tolist() == [7, 7, 8]


def test_rows_can_be_dropped_copied_and_put_in_another_order() -> None:
    memory = KVCache()
    layer, (key, value) = memory.allocate(1)[0], torch.randn(2, 3, 1, 2, 4)
    layer.update(key, value)
    layer.cross_kv(lambda: (key, value))
    rows = torch.tensor([2, 0, 0, 2])
    memory.reorder(rows)
    nothing = torch.empty(4, 1, 0, 4)
    for kept in (layer.update(nothing, nothing), layer.cross_kv(lambda: (nothing, nothing))):
        assert_close(kept[0], key[rows])
        assert_close(kept[1], value[rows])


def test_what_is_forgotten_never_came_and_what_was_recalled_stays() -> None:
    memory, first, second, other = DynamicCache(), pair(3), pair(2), pair(4)
    memory.cross_kv(lambda: other)
    memory.update(*first)
    memory.crop(2)
    assert memory.length == 1
    for whole, one, new in zip(memory.update(*second), first, second, strict=True):
        assert_close(whole, torch.cat([one[:, :, :1], new], 2))
    assert memory.cross_kv(lambda: pair(1)) is other


def test_a_memory_of_all_layers_forgets_in_each_and_not_more_than_came() -> None:
    memory = KVCache()
    for layer in memory.allocate(2):
        layer.update(*pair(3))
    memory.crop(3)
    assert [layer.length for layer in memory.layers] == [0, 0]
    with pytest.raises(ShapeError, match="cannot crop 1 positions of a cache of length 0"):
        memory.crop(1)
