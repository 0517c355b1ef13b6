"""Sequences that go on in several ways, none of which is copied."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from softlook.base.errors import ShapeError
from softlook.blocks import BeamCache, DynamicCache, KVCache
from softlook.blocks.beam_cache import MIN_SOURCES_FOR_BMM, BeamLayerCache, beam_attention, fold_beams, unfold_beams
from softlook.decode.cpu import prepack_for_cpu
from softlook.models import GPT, GPTConfig

torch.manual_seed(0)
READER = GPT(GPTConfig(vocab_size=9, context=40, dim=16, depth=2, heads=2)).eval()
LEAN = prepack_for_cpu(READER)
PAIR = st.lists(st.integers(0, 8), min_size=2, max_size=2)


@settings(max_examples=20)
@given(st.data(), st.integers(1, 3), st.integers(1, 4), st.booleans())
@torch.no_grad()
def test_whatever_is_followed_each_way_sees_its_own_past(
    data: st.DataObject, sequences: int, ways: int, lean: bool
) -> None:
    model, memory = LEAN if lean else READER, BeamCache()
    start_ids = torch.tensor([data.draw(PAIR) for _ in range(sequences)])
    model(start_ids, cache=memory)
    rows = torch.arange(sequences).repeat_interleave(ways)
    memory.expand_beams(rows, ways)
    said = start_ids[rows]
    for _ in range(4):
        N = len(said) // ways
        words = torch.tensor(data.draw(st.lists(st.integers(0, 8), min_size=N * ways, max_size=N * ways)))[:, None]
        said = torch.cat([said, words], 1)
        assert_close(model(words, cache=memory)[:, -1], READER(said)[:, -1], atol=1e-5, rtol=1e-4)
        keep = sorted(data.draw(st.sets(st.integers(0, N - 1), min_size=1)))
        parents = data.draw(st.lists(st.integers(0, ways - 1), min_size=len(keep) * ways, max_size=len(keep) * ways))
        chosen = torch.tensor([keep[i // ways] * ways + parent for i, parent in enumerate(parents)])
        memory.reorder_beams(chosen, None if len(keep) == N else torch.tensor(keep))
        said = said[chosen]


@torch.no_grad()
def test_following_moves_no_keys() -> None:
    memory, rows = BeamCache(), torch.tensor([0, 0, 0])
    LEAN(torch.tensor([[1, 2]]), cache=memory)
    memory.expand_beams(rows, 3)
    LEAN(torch.tensor([[1], [2], [3]]), cache=memory)
    layer = memory.layers[0]
    assert isinstance(layer, BeamLayerCache) and layer.buffer is not None
    before, version = layer.buffer.data_ptr(), layer.buffer._version
    memory.reorder_beams(torch.tensor([2, 2, 0]))
    assert (layer.buffer.data_ptr(), layer.buffer._version) == (before, version)


def test_what_several_ways_cannot_do_is_refused() -> None:
    memory = BeamCache()
    READER(torch.tensor([[1, 2]]), cache=memory)
    memory.expand_beams(torch.tensor([0, 0]), 2)
    with pytest.raises(ShapeError, match="beams take one token per step, got 2"):
        READER(torch.tensor([[1, 2], [3, 4]]), cache=memory)
    with pytest.raises(ShapeError, match="this cache has been expanded to beams already"):
        memory.expand_beams(torch.tensor([0, 0]), 2)
    with pytest.raises(ShapeError, match="beams are reordered by reorder_beams, which keeps the beams of a sequence"):
        memory.reorder(torch.tensor([0]))
    with pytest.raises(ShapeError, match="not taken back"):
        memory.crop(1)


def test_a_plain_memory_branches_by_copies() -> None:
    memory, key = KVCache(), torch.randn(2, 1, 3, 4)
    layer = memory.allocate(1)[0]
    layer.update(key, key)
    memory.expand_beams(torch.tensor([0, 0, 1, 1]), 2)
    assert isinstance(layer, DynamicCache) and layer.kv is not None
    assert_close(layer.kv[0], key[[0, 0, 1, 1]])


def test_queries_are_folded_and_unfolded_in_their_own_order() -> None:
    query = torch.randn(6, 2, 3, 4)
    assert unfold_beams(fold_beams(query, 2), 6).equal(query)
    assert fold_beams(query, 2)[1, :, 3:6].equal(query[4])
    with pytest.raises(
        ShapeError, match="the batch must be a multiple of the number of encoded sequences, got 6 and 4"
    ):
        fold_beams(query, 4)


@pytest.mark.parametrize("shaded", [False, True])
def test_queries_of_many_sources_see_what_those_of_one_do(shaded: bool) -> None:
    query, (key, value) = torch.randn(MIN_SOURCES_FOR_BMM, 2, 3, 4), torch.randn(2, MIN_SOURCES_FOR_BMM, 2, 5, 4)
    dark = torch.where(
        torch.rand(MIN_SOURCES_FOR_BMM, 1, 3, 5).argsort(-1) < 3, 0.0, -torch.inf
    )  # three of five are seen
    allowed = dark if shaded else None
    together = beam_attention(query, key, value, mask=allowed, scale=0.5).unflatten(0, (MIN_SOURCES_FOR_BMM, 3))
    for one in range(MIN_SOURCES_FOR_BMM):
        own = slice(one, one + 1)
        shade = dark[own] if shaded else None
        alone = beam_attention(query[own], key[own], value[own], mask=shade, scale=0.5)
        assert_close(together[one], alone)
