"""Every way to keep the past gives the same answers."""

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
    "growing": lambda: KVCache(DynamicCache),
    "static": lambda: KVCache(lambda: StaticCache(9)),
    "sliding": lambda: KVCache(lambda: SlidingWindowCache(4)),
    "branches": BeamCache,
}
IDS = torch.tensor([[3, 1, 4, 1, 5, 8, 2, 6, 5], [2, 7, 1, 8, 2, 8, 1, 8, 2]])


def model(window: int | None = 4) -> Llama:
    torch.manual_seed(0)
    return Llama(
        LlamaConfig(vocab_size=9, context=16, dim=16, depth=2, heads=4, kv_heads=2, sliding_window=window)
    ).eval()


def pieces(parts: tuple[int, ...]) -> list[tuple[int, int]]:
    return [(sum(parts[:i]), sum(parts[: i + 1])) for i in range(len(parts))]


@pytest.mark.parametrize("parts", [(1,) * 9, (3, 1, 5), (6, 3), (9,)], ids=str)
@pytest.mark.parametrize("kind", EXACT)
@torch.no_grad()
def test_word_by_word_or_in_pieces_answers_are_those_of_one_reading(kind: str, parts: tuple[int, ...]) -> None:
    reader, memory = model(), EXACT[kind]()
    said = [reader(IDS[:, start:stop], cache=memory) for start, stop in pieces(parts)]
    assert_close(torch.cat(said, 1), reader(IDS))
    assert memory.length == 9


@pytest.mark.parametrize("kind", EXACT)
@torch.no_grad()
def test_rows_that_are_dropped_copied_and_moved_go_on_as_they_were(kind: str) -> None:
    reader, memory, rows = model(), EXACT[kind](), torch.tensor([1, 0, 1])
    reader(IDS[:, :5], cache=memory)
    memory.reorder(rows)
    assert_close(reader(IDS[rows, 5:6], cache=memory), reader(IDS[rows, :6])[:, -1:])
    memory.reorder(torch.tensor([1, 1, 2]))  # as many as there were: in place, where there is one
    wanted = IDS[rows[[1, 1, 2]]]
    assert_close(reader(wanted[:, 6:7], cache=memory), reader(wanted[:, :7])[:, -1:])


@pytest.mark.parametrize("kind", EXACT)
@torch.no_grad()
def test_what_is_forgotten_never_came(kind: str) -> None:
    reader, memory = model(), EXACT[kind]()
    reader(IDS[:, :3], cache=memory)
    memory.crop(2)
    said = reader(IDS[:, 1:4], cache=memory)
    assert_close(said, reader(IDS[:, :4])[:, 1:])
    with pytest.raises(ShapeError, match="cannot crop 5 positions of a cache of length 4"):
        memory.crop(5)


@torch.no_grad()
def test_a_window_does_not_give_back_what_slid_out() -> None:
    memory = SlidingWindowCache(3)
    key = torch.randn(1, 1, 6, 4)
    memory.update(key, key)
    with pytest.raises(ShapeError, match="cannot crop 1 positions: the positions before them have left the window"):
        memory.crop(1)


@torch.no_grad()
def test_bytes_are_off_by_no_more_than_half_a_step_of_each_head_and_token() -> None:
    torch.manual_seed(0)
    memory, key, value = QuantizedCache(), *torch.randn(2, 2, 3, 50, 8)
    kept = key, value
    for start in range(0, 50, 10):
        kept = memory.update(key[:, :, start : start + 10], value[:, :, start : start + 10])
    for got, wanted in zip(kept, (key, value), strict=True):
        assert ((got - wanted).abs() <= wanted.abs().amax(-1, keepdim=True) / 254 * 1.001).all()
    assert memory.buffers is not None and memory.buffers[0].dtype == torch.int8


@torch.no_grad()
def test_a_memory_of_bytes_answers_nearly_the_same_and_follows_rows() -> None:
    reader, memory, rows = model(None), KVCache(QuantizedCache), torch.tensor([1, 1, 0])
    reader(IDS[:, :5], cache=memory)
    memory.reorder(rows)
    memory.crop(1)
    got, wanted = reader(IDS[rows, 4:7], cache=memory), reader(IDS[rows, :7])[:, -3:]
    assert_close(got, wanted, atol=0.02, rtol=0)
    assert not torch.equal(got, wanted)


@torch.no_grad()
def test_zeros_are_kept_as_zeros_in_bytes() -> None:
    nothing = torch.zeros(1, 1, 2, 4)
    assert QuantizedCache().update(nothing, nothing)[0].equal(nothing)


@torch.no_grad()
def test_with_places_told_by_a_tensor_every_step_is_the_same_operations() -> None:
    reader, at = model(None), torch.zeros(1, dtype=torch.long)
    memory, wanted = KVCache(lambda: StaticCache(9, at)), reader(IDS)
    buffers: list[Tensor] = []
    for step in range(9):
        at.fill_(step)
        seen = dense((torch.arange(9) <= at)[None])
        said = reader(IDS[:, step : step + 1], cache=memory, mask=seen, positions=at)
        assert_close(said, wanted[:, step : step + 1])
        layer = memory.layers[0]
        assert isinstance(layer, StaticCache) and layer.buffer is not None
        buffers.append(layer.buffer[0])
    assert len({buffer.data_ptr() for buffer in buffers}) == 1


@torch.no_grad()
def test_a_static_memory_moves_only_rows_that_change_and_stays_where_it_is() -> None:
    memory, key = StaticCache(4), torch.randn(3, 1, 2, 4)
    memory.update(key, key)
    assert memory.buffer is not None
    place = memory.buffer[0].data_ptr()
    memory.reorder(torch.tensor([0, 2, 2]))
    nothing = torch.empty(3, 1, 0, 4)
    assert_close(memory.update(nothing, nothing)[0], key[[0, 2, 2]])
    assert memory.buffer[0].data_ptr() == place


@pytest.mark.parametrize(
    "make",
    [DynamicCache, lambda: StaticCache(4), lambda: SlidingWindowCache(4), QuantizedCache],
    ids=["g", "st", "sl", "q"],
)
def test_rows_can_share_what_was_made_of_other_sequences(make: Callable[[], BeamLayer]) -> None:
    memory, (key, value), other = make(), torch.randn(2, 2, 1, 2, 4), torch.randn(2, 1, 3, 4)
    assert isinstance(memory, LayerCache) and isinstance(memory, BeamLayer)
    memory.update(key, value)
    memory.cross_kv(lambda: (other, other))
    memory.reorder_beams(torch.tensor([0, 0, 1, 1]))
    assert memory.cross_kv(lambda: (key, key))[0] is other  # not a copy, and not made again
    memory.reorder_beams(torch.tensor([3, 2]), torch.tensor([1]))
    assert_close(memory.cross_kv(lambda: (key, key))[0], other[1:])


def test_memories_that_are_too_small_say_so() -> None:
    key = torch.randn(1, 1, 5, 4)
    with pytest.raises(ShapeError, match=r"a cache of capacity 4 cannot hold 5 positions\. Use a larger capacity\."):
        StaticCache(4).update(key, key)
    with pytest.raises(ConfigError, match="the capacity of a cache must be at least 1, got 0"):
        StaticCache(0)
    with pytest.raises(ConfigError, match=r"a window must be at least 1 \(the token itself\), got 0"):
        SlidingWindowCache(0)
