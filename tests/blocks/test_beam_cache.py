"""The KV cache of beam search: beams share their prefix without copies."""

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
MODEL = GPT(GPTConfig(vocab_size=9, context=40, dim=16, depth=2, heads=2)).eval()
PREPACKED = prepack_for_cpu(MODEL)
PAIR = st.lists(st.integers(0, 8), min_size=2, max_size=2)


@settings(max_examples=20)
@given(st.data(), st.integers(1, 3), st.integers(1, 4), st.booleans())
@torch.no_grad()
def test_after_any_reordering_every_beam_attends_to_its_own_prefix(
    data: st.DataObject, sequences: int, num_beams: int, prepacked: bool
) -> None:
    model, cache = PREPACKED if prepacked else MODEL, BeamCache()
    prompts = torch.tensor([data.draw(PAIR) for _ in range(sequences)])
    model(prompts, cache=cache)
    rows = torch.arange(sequences).repeat_interleave(num_beams)
    cache.expand_beams(rows, num_beams)
    ids = prompts[rows]
    for _ in range(4):
        N = len(ids) // num_beams
        tokens = torch.tensor(data.draw(st.lists(st.integers(0, 8), min_size=N * num_beams, max_size=N * num_beams)))[
            :, None
        ]
        ids = torch.cat([ids, tokens], 1)
        assert_close(model(tokens, cache=cache)[:, -1], MODEL(ids)[:, -1], atol=1e-5, rtol=1e-4)
        keep = sorted(data.draw(st.sets(st.integers(0, N - 1), min_size=1)))
        parents = data.draw(
            st.lists(st.integers(0, num_beams - 1), min_size=len(keep) * num_beams, max_size=len(keep) * num_beams)
        )
        selected = torch.tensor([keep[i // num_beams] * num_beams + parent for i, parent in enumerate(parents)])
        cache.reorder_beams(selected, None if len(keep) == N else torch.tensor(keep))
        ids = ids[selected]


@torch.no_grad()
def test_reordering_beams_copies_no_keys() -> None:
    cache, rows = BeamCache(), torch.tensor([0, 0, 0])
    PREPACKED(torch.tensor([[1, 2]]), cache=cache)
    cache.expand_beams(rows, 3)
    PREPACKED(torch.tensor([[1], [2], [3]]), cache=cache)
    layer = cache.layers[0]
    assert isinstance(layer, BeamLayerCache) and layer.buffer is not None
    before, version = layer.buffer.data_ptr(), layer.buffer._version
    cache.reorder_beams(torch.tensor([2, 2, 0]))
    assert (layer.buffer.data_ptr(), layer.buffer._version) == (before, version)


def test_unsupported_operations_on_beams_raise_an_error() -> None:
    cache = BeamCache()
    MODEL(torch.tensor([[1, 2]]), cache=cache)
    cache.expand_beams(torch.tensor([0, 0]), 2)
    with pytest.raises(ShapeError, match="beams take one token per step, got 2"):
        MODEL(torch.tensor([[1, 2], [3, 4]]), cache=cache)
    with pytest.raises(ShapeError, match="this cache has been expanded to beams already"):
        cache.expand_beams(torch.tensor([0, 0]), 2)
    with pytest.raises(ShapeError, match="beams are reordered by reorder_beams, which keeps the beams of a sequence"):
        cache.reorder(torch.tensor([0]))
    with pytest.raises(ShapeError, match="a cache that has been expanded to beams cannot be cropped"):
        cache.crop(1)


def test_a_plain_cache_expands_beams_by_copies() -> None:
    cache, key = KVCache(), torch.randn(2, 1, 3, 4)
    layer = cache.allocate(1)[0]
    layer.update(key, key)
    cache.expand_beams(torch.tensor([0, 0, 1, 1]), 2)
    assert isinstance(layer, DynamicCache) and layer.kv is not None
    assert_close(layer.kv[0], key[[0, 0, 1, 1]])


def test_folding_and_unfolding_beams_keeps_their_order() -> None:
    query = torch.randn(6, 2, 3, 4)
    assert unfold_beams(fold_beams(query, 2), 6).equal(query)
    assert fold_beams(query, 2)[1, :, 3:6].equal(query[4])
    with pytest.raises(
        ShapeError, match="the batch must be a multiple of the number of encoded sequences, got 6 and 4"
    ):
        fold_beams(query, 4)


@pytest.mark.parametrize("masked", [False, True])
def test_beam_attention_over_many_sources_equals_that_over_each(masked: bool) -> None:
    query, (key, value) = torch.randn(MIN_SOURCES_FOR_BMM, 2, 3, 4), torch.randn(2, MIN_SOURCES_FOR_BMM, 2, 5, 4)
    three_visible = torch.rand(MIN_SOURCES_FOR_BMM, 1, 3, 5).argsort(-1) < 3
    additive_mask = torch.where(three_visible, 0.0, -torch.inf) if masked else None
    batched = beam_attention(query, key, value, mask=additive_mask, scale=0.5).unflatten(0, (MIN_SOURCES_FOR_BMM, 3))
    for i in range(MIN_SOURCES_FOR_BMM):
        own = slice(i, i + 1)
        mask = None if additive_mask is None else additive_mask[own]
        alone = beam_attention(query[own], key[own], value[own], mask=mask, scale=0.5)
        assert_close(batched[i], alone)
