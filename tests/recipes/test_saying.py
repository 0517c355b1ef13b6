"""Texts are answered many at once, as many as a device has room for."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from softlook.decode.habits import usual
from softlook.recipes.saying import LARGE, MOST, ROOM, batches, room_on


@given(st.lists(st.integers(1, 90), max_size=200), st.integers(1, 8), st.integers(1, 3000))
def test_every_text_is_in_one_batch_that_has_room(lengths: list[int], beams: int, room: int) -> None:
    made = list(batches(lengths, beams, room))
    assert sorted(number for batch in made for number in batch) == list(range(len(lengths)))
    for batch in made:
        assert len(batch) == 1 or len(batch) * max(lengths[number] for number in batch) * beams <= room
        assert len({usual(lengths[number]) for number in batch}) == 1


def test_no_batch_has_more_texts_than_are_of_use() -> None:
    assert [len(batch) for batch in batches([1] * (2 * MOST + 1), 1, 10**9)] == [MOST, MOST, 1]


@pytest.mark.parametrize(("gigabytes", "room"), [(1, ROOM), (24, 24 * 2048), (140, LARGE)], ids=str)
def test_a_gpu_has_as_much_room_as_it_has_memory(gigabytes: int, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = SimpleNamespace(total_memory=gigabytes << 30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: asked)
    assert room_on(torch.device("cuda")) == room
    assert room_on(torch.device("cpu")) == ROOM
