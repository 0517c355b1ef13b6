"""Every way to keep the past gives the same answers."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from softlook.base.errors import ConfigError, ShapeError
from softlook.blocks import Branches, Growing, Memory, Quantised, Sliding, Static
from softlook.blocks.memory import LayerMemory, SharingMemory
from softlook.models import Llama, LlamaConfig
from softlook.ops.masks import dense

EXACT: dict[str, Callable[[], Memory]] = {
    "growing": lambda: Memory(Growing),
    "static": lambda: Memory(lambda: Static(9)),
    "sliding": lambda: Memory(lambda: Sliding(4)),
    "branches": Branches,
}
IDS = torch.tensor([[3, 1, 4, 1, 5, 8, 2, 6, 5], [2, 7, 1, 8, 2, 8, 1, 8, 2]])


def model(window: int | None = 4) -> Llama:
    torch.manual_seed(0)
    return Llama(LlamaConfig(vocab=9, context=16, dim=16, depth=2, heads=4, kv_heads=2, window=window)).eval()


def pieces(parts: tuple[int, ...]) -> list[tuple[int, int]]:
    return [(sum(parts[:i]), sum(parts[: i + 1])) for i in range(len(parts))]


@pytest.mark.parametrize("parts", [(1,) * 9, (3, 1, 5), (6, 3), (9,)], ids=str)
@pytest.mark.parametrize("kind", EXACT)
@torch.no_grad()
def test_word_by_word_or_in_pieces_answers_are_those_of_one_reading(kind: str, parts: tuple[int, ...]) -> None:
    reader, memory = model(), EXACT[kind]()
    said = [reader(IDS[:, start:stop], memory=memory) for start, stop in pieces(parts)]
    assert_close(torch.cat(said, 1), reader(IDS))
    assert memory.length == 9


@pytest.mark.parametrize("kind", EXACT)
@torch.no_grad()
def test_rows_that_are_dropped_copied_and_moved_go_on_as_they_were(kind: str) -> None:
    reader, memory, rows = model(), EXACT[kind](), torch.tensor([1, 0, 1])
    reader(IDS[:, :5], memory=memory)
    memory.select(rows)
    assert_close(reader(IDS[rows, 5:6], memory=memory), reader(IDS[rows, :6])[:, -1:])
    memory.select(torch.tensor([1, 1, 2]))  # as many as there were: in place, where there is one
    wanted = IDS[rows[[1, 1, 2]]]
    assert_close(reader(wanted[:, 6:7], memory=memory), reader(wanted[:, :7])[:, -1:])


@pytest.mark.parametrize("kind", EXACT)
@torch.no_grad()
def test_what_is_forgotten_never_came(kind: str) -> None:
    reader, memory = model(), EXACT[kind]()
    reader(IDS[:, :3], memory=memory)
    memory.forget(2)
    said = reader(IDS[:, 1:4], memory=memory)
    assert_close(said, reader(IDS[:, :4])[:, 1:])
    with pytest.raises(ShapeError, match="cannot be forgotten"):
        memory.forget(5)


@torch.no_grad()
def test_a_window_does_not_give_back_what_slid_out() -> None:
    memory = Sliding(3)
    key = torch.randn(1, 1, 6, 4)
    memory.extend(key, key)
    with pytest.raises(ShapeError, match="has slid out of the window"):
        memory.forget(1)


@torch.no_grad()
def test_bytes_are_off_by_no_more_than_half_a_step_of_each_head_and_token() -> None:
    torch.manual_seed(0)
    memory, key, value = Quantised(), *torch.randn(2, 2, 3, 50, 8)
    kept = key, value
    for start in range(0, 50, 10):
        kept = memory.extend(key[:, :, start : start + 10], value[:, :, start : start + 10])
    for got, wanted in zip(kept, (key, value), strict=True):
        assert ((got - wanted).abs() <= wanted.abs().amax(-1, keepdim=True) / 254 * 1.001).all()
    assert memory.parts is not None and memory.parts[0].dtype == torch.int8


@torch.no_grad()
def test_a_memory_of_bytes_answers_nearly_the_same_and_follows_rows() -> None:
    reader, memory, rows = model(None), Memory(Quantised), torch.tensor([1, 1, 0])
    reader(IDS[:, :5], memory=memory)
    memory.select(rows)
    memory.forget(1)
    got, wanted = reader(IDS[rows, 4:7], memory=memory), reader(IDS[rows, :7])[:, -3:]
    assert_close(got, wanted, atol=0.02, rtol=0)
    assert not torch.equal(got, wanted)


@torch.no_grad()
def test_zeros_are_kept_as_zeros_in_bytes() -> None:
    nothing = torch.zeros(1, 1, 2, 4)
    assert Quantised().extend(nothing, nothing)[0].equal(nothing)


@torch.no_grad()
def test_with_places_told_by_a_tensor_every_step_is_the_same_operations() -> None:
    reader, at = model(None), torch.zeros(1, dtype=torch.long)
    memory, wanted = Memory(lambda: Static(9, at)), reader(IDS)
    buffers: list[Tensor] = []
    for step in range(9):
        at.fill_(step)
        seen = dense((torch.arange(9) <= at)[None])
        said = reader(IDS[:, step : step + 1], memory=memory, mask=seen, positions=at)
        assert_close(said, wanted[:, step : step + 1])
        layer = memory.kept[0]
        assert isinstance(layer, Static) and layer.both is not None
        buffers.append(layer.both[0])
    assert len({buffer.data_ptr() for buffer in buffers}) == 1


@torch.no_grad()
def test_a_static_memory_moves_only_rows_that_change_and_stays_where_it_is() -> None:
    memory, key = Static(4), torch.randn(3, 1, 2, 4)
    memory.extend(key, key)
    assert memory.both is not None
    place = memory.both[0].data_ptr()
    memory.select(torch.tensor([0, 2, 2]))
    nothing = torch.empty(3, 1, 0, 4)
    assert_close(memory.extend(nothing, nothing)[0], key[[0, 2, 2]])
    assert memory.both[0].data_ptr() == place


@pytest.mark.parametrize(
    "make", [Growing, lambda: Static(4), lambda: Sliding(4), Quantised], ids=["g", "st", "sl", "q"]
)
def test_rows_can_share_what_was_made_of_other_sequences(make: Callable[[], SharingMemory]) -> None:
    memory, (key, value), other = make(), torch.randn(2, 2, 1, 2, 4), torch.randn(2, 1, 3, 4)
    assert isinstance(memory, LayerMemory) and isinstance(memory, SharingMemory)
    memory.extend(key, value)
    memory.recall(lambda: (other, other))
    memory.follow(torch.tensor([0, 0, 1, 1]))
    assert memory.recall(lambda: (key, key))[0] is other  # not a copy, and not made again
    memory.follow(torch.tensor([3, 2]), torch.tensor([1]))
    assert_close(memory.recall(lambda: (key, key))[0], other[1:])


def test_memories_that_are_too_small_say_so() -> None:
    key = torch.randn(1, 1, 5, 4)
    with pytest.raises(ShapeError, match="made for 4 positions cannot hold 5"):
        Static(4).extend(key, key)
    with pytest.raises(ConfigError, match="at least one position; 0 came"):
        Static(0)
    with pytest.raises(ConfigError, match="no room for oneself"):
        Sliding(0)
