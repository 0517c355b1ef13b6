"""Sequences that go on in several ways, none of which is copied."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from softlook.base.errors import ShapeError
from softlook.blocks import Branches, Growing, Memory
from softlook.blocks.branches import Branch
from softlook.blocks.sharing import MANY, folded, look_together, unfolded
from softlook.decode.packed import packed
from softlook.models import GPT, GPTConfig

torch.manual_seed(0)
READER = GPT(GPTConfig(vocab=9, context=40, dim=16, depth=2, heads=2)).eval()
LEAN = packed(READER)
PAIR = st.lists(st.integers(0, 8), min_size=2, max_size=2)


@settings(max_examples=20)
@given(st.data(), st.integers(1, 3), st.integers(1, 4), st.booleans())
@torch.no_grad()
def test_whatever_is_followed_each_way_sees_its_own_past(
    data: st.DataObject, sequences: int, ways: int, lean: bool
) -> None:
    model, memory = LEAN if lean else READER, Branches()
    start = torch.tensor([data.draw(PAIR) for _ in range(sequences)])
    model(start, memory=memory)
    rows = torch.arange(sequences).repeat_interleave(ways)
    memory.branch(rows, ways)
    said = start[rows]
    for _ in range(4):
        N = len(said) // ways
        words = torch.tensor(data.draw(st.lists(st.integers(0, 8), min_size=N * ways, max_size=N * ways)))[:, None]
        said = torch.cat([said, words], 1)
        assert_close(model(words, memory=memory)[:, -1], READER(said)[:, -1], atol=1e-5, rtol=1e-4)
        keep = sorted(data.draw(st.sets(st.integers(0, N - 1), min_size=1)))
        parents = data.draw(st.lists(st.integers(0, ways - 1), min_size=len(keep) * ways, max_size=len(keep) * ways))
        chosen = torch.tensor([keep[i // ways] * ways + parent for i, parent in enumerate(parents)])
        memory.follow(chosen, None if len(keep) == N else torch.tensor(keep))
        said = said[chosen]


@torch.no_grad()
def test_following_moves_no_keys() -> None:
    memory, rows = Branches(), torch.tensor([0, 0, 0])
    LEAN(torch.tensor([[1, 2]]), memory=memory)
    memory.branch(rows, 3)
    LEAN(torch.tensor([[1], [2], [3]]), memory=memory)
    layer = memory.kept[0]
    assert isinstance(layer, Branch) and layer.both is not None
    before, version = layer.both.data_ptr(), layer.both._version
    memory.follow(torch.tensor([2, 2, 0]))
    assert (layer.both.data_ptr(), layer.both._version) == (before, version)


def test_what_several_ways_cannot_do_is_refused() -> None:
    memory = Branches()
    READER(torch.tensor([[1, 2]]), memory=memory)
    memory.branch(torch.tensor([0, 0]), 2)
    with pytest.raises(ShapeError, match="word by word; 2 words came at once"):
        READER(torch.tensor([[1, 2], [3, 4]]), memory=memory)
    with pytest.raises(ShapeError, match="in several ways already"):
        memory.branch(torch.tensor([0, 0]), 2)
    with pytest.raises(ShapeError, match="led by `follow`"):
        memory.select(torch.tensor([0]))
    with pytest.raises(ShapeError, match="not taken back"):
        memory.forget(1)


def test_a_plain_memory_branches_by_copies() -> None:
    memory, key = Memory(), torch.randn(2, 1, 3, 4)
    layer = memory.layers(1)[0]
    layer.extend(key, key)
    memory.branch(torch.tensor([0, 0, 1, 1]), 2)
    assert isinstance(layer, Growing) and layer.own is not None
    assert_close(layer.own[0], key[[0, 0, 1, 1]])


def test_queries_are_folded_and_unfolded_in_their_own_order() -> None:
    query = torch.randn(6, 2, 3, 4)
    assert unfolded(folded(query, 2), 6).equal(query)
    assert folded(query, 2)[1, :, 3:6].equal(query[4])
    with pytest.raises(ShapeError, match="6 rows cannot share 4 sources evenly"):
        folded(query, 4)


@pytest.mark.parametrize("shaded", [False, True])
def test_queries_of_many_sources_see_what_those_of_one_do(shaded: bool) -> None:
    query, (key, value) = torch.randn(MANY, 2, 3, 4), torch.randn(2, MANY, 2, 5, 4)
    dark = torch.where(torch.rand(MANY, 1, 3, 5).argsort(-1) < 3, 0.0, -torch.inf)  # three of five are seen
    allowed = dark if shaded else None
    together = look_together(query, key, value, allowed=allowed, scale=0.5).unflatten(0, (MANY, 3))
    for one in range(MANY):
        own = slice(one, one + 1)
        shade = dark[own] if shaded else None
        alone = look_together(query[own], key[own], value[own], allowed=shade, scale=0.5)
        assert_close(together[one], alone)
