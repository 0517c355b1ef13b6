"""Masks and biases that speak of the context, where other keys stand before it."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from softlook import MaskError, attention, attention_weights, masks, positions
from softlook.base.shapes import Tile
from softlook.blocks.prefix_keys import bias_with_prefix_keys, mask_with_prefix_keys
from softlook.ops.bias import as_bias

COUNT, SIZES = 3, (2, 4, 5, 7)
B, H, T, S = SIZES
OUTER = (B, H, T, S + COUNT)
DEVICE = torch.device("cpu")
MASKS: dict[str, masks.Mask] = {
    "causal": masks.causal(),
    "window": masks.window(1),
    "window ahead": masks.window(1, 1),
    "prefix": masks.prefix([2, 4]),
    "padding": masks.padding([4, 7]),
    "padding on the left": masks.padding([4, 7], side="left", length=S),
    "documents": masks.documents(torch.tensor([[0, 0, 1, 1, 1, 2, 2], [0, 0, 0, 0, 1, 1, 1]])),
    "graph": masks.graph(torch.tensor([[0, 1, 4], [6, 0, 2]])),
    "written out": masks.dense(torch.rand(B, 1, T, S, generator=torch.Generator().manual_seed(1)) > 0.5),
    "two together": masks.causal() & masks.padding([4, 7]),
    "one or the other": masks.causal() | masks.prefix(2),
    "not": ~masks.window(1),
    "nothing at all": masks.prefix(0),
}
TILES = [range(0, 10), range(0, 2), range(1, 3), range(2, 6), range(3, 10), range(5, 8)]


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def biases() -> dict[str, Any]:
    return {
        "alibi": positions.alibi(torch.tensor([0.5, 0.25, 0.125, 0.0625])),
        "t5": positions.t5(normal(8, H)),
        "shaw": positions.shaw(normal(5, 6)),
        "shaw with values": positions.shaw(normal(5, 6), normal(5, 6)),
        "transformer_xl": positions.transformer_xl(normal(H, S, 6), normal(H, 6), normal(H, 6)),
        "written out": normal(B, 1, T, S),
        "two together": positions.alibi(4) + normal(T, S),
    }


@pytest.mark.parametrize("name", MASKS)
def test_what_stands_before_is_always_seen_and_the_rest_as_the_mask_says(name: str) -> None:
    outer = mask_with_prefix_keys(MASKS[name], COUNT)
    assert outer is not None
    seen = outer.to_dense(OUTER).expand(OUTER)
    assert seen[..., :COUNT].all()
    assert torch.equal(seen[..., COUNT:], MASKS[name].to_dense(SIZES).expand(SIZES))


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("columns", TILES, ids=str)
def test_what_a_mask_says_of_a_tile_is_true(name: str, columns: range) -> None:
    outer = mask_with_prefix_keys(MASKS[name], COUNT)
    assert outer is not None
    whole = outer.to_dense(OUTER).expand(OUTER)
    tile = Tile(range(B), range(H), range(1, 4), columns, T, S + COUNT, DEVICE)
    part = whole[:, :, 1:4, columns.start : columns.stop]
    assert torch.equal(outer.tile(tile).expand_as(part), part)
    assert torch.equal(outer.mask_mod(*tile.indices(), tile.shift).expand_as(part), part)
    reach, clear = outer.visible_range(tile), outer.full_range(tile)
    for j in columns:
        here = whole[:, :, 1:4, j]
        assert j in reach or not here.any()
        assert j not in clear or here.all()
    assert outer.every_row_visible(T, S + COUNT)


PATHS = [(name, backend) for name in biases() for backend in ("reference", "tiled", "sdpa")]
PATHS.remove(("shaw with values", "sdpa"))  # torch's kernels have no relative values


@pytest.mark.parametrize(("name", "backend"), PATHS)
def test_a_bias_touches_the_context_alone_on_every_path(name: str, backend: Any) -> None:
    bias = as_bias(biases()[name])
    query, key, value = normal(B, H, T, 6), normal(B, H, S, 6), normal(B, H, S, 6)
    first_key, first_value = normal(B, H, COUNT, 6), normal(B, H, COUNT, 6)
    keys, values = torch.cat([first_key, key], 2), torch.cat([first_value, value], 2)
    for mask in (None, MASKS["two together"]):
        seen = torch.ones(SIZES, dtype=torch.bool) if mask is None else mask.to_dense(SIZES).expand(SIZES)
        context = attention_scores_of(query, key, bias).masked_fill(~seen, -torch.inf)
        weights = torch.cat([query @ first_key.mT / 6**0.5, context], -1).softmax(-1)
        wanted = weights @ values
        added = bias.relative_values(weights[..., COUNT:], Tile.whole(SIZES, DEVICE))
        wanted = wanted if added is None else wanted + added
        options: Any = {"mask": mask_with_prefix_keys(mask, COUNT), "bias": bias_with_prefix_keys(bias, COUNT)}
        assert_close(attention(query, keys, values, **options, backend=backend), wanted)
        assert_close(attention_weights(query, keys, **options), weights)


def attention_scores_of(query: Tensor, key: Tensor, bias: Any) -> Tensor:
    return query @ key.mT / 6**0.5 + bias.tile(query, key, 6**-0.5, Tile.whole(SIZES, DEVICE))


@pytest.mark.parametrize("name", ["alibi", "t5", "written out", "two together"])
def test_single_entries_and_tiles_of_a_bias_agree(name: str) -> None:
    outer = bias_with_prefix_keys(biases()[name], COUNT)
    assert outer is not None
    at, tile = outer.score_mod(T, S + COUNT), Tile.whole(OUTER, DEVICE)
    assert at is not None
    query, key = normal(B, H, T, 6), normal(B, H, S + COUNT, 6)
    whole = outer.tile(query, key, 1.0, tile).expand(OUTER)
    zeros = torch.zeros(OUTER, dtype=whole.dtype)
    assert_close(at(zeros, *torch.broadcast_tensors(*tile.indices())).to(whole), whole)


def test_a_bias_that_meets_the_content_has_no_single_entries() -> None:
    outer = bias_with_prefix_keys(biases()["shaw"], COUNT)
    assert outer is not None and outer.score_mod(T, S + COUNT) is None


def test_a_tile_of_what_stands_before_needs_nothing_of_the_bias() -> None:
    outer = bias_with_prefix_keys(biases()["transformer_xl"], COUNT)
    assert outer is not None
    tile = Tile(range(B), range(H), range(T), range(0, 2), T, S + COUNT, DEVICE)
    numbers = outer.tile(normal(B, H, T, 6), normal(B, H, 2, 6), 1.0, tile)
    assert numbers.eq(0).all() and numbers.shape[-1] == 2


def test_a_plain_causal_mask_stays_what_kernels_know_and_nothing_stays_nothing() -> None:
    assert mask_with_prefix_keys(masks.causal(), COUNT) == masks.causal()
    assert mask_with_prefix_keys(None, COUNT) is None
    assert bias_with_prefix_keys(None, COUNT) is None


def test_they_say_what_they_are() -> None:
    assert str(mask_with_prefix_keys(masks.window(1), 3)) == "(window(1, 0) beside 3 keys)"
    assert str(bias_with_prefix_keys(positions.alibi(2), 3)) == "(alibi beside 3 keys)"


def test_a_mask_or_bias_that_does_not_fit_the_context_is_refused() -> None:
    query, key = normal(B, H, T, 6), normal(B, H, S + COUNT, 6)
    with pytest.raises(MaskError, match="this padding mask is for 6 keys, got 7 keys"):
        attention_weights(query, key, mask=mask_with_prefix_keys(masks.padding([4, 6], side="left", length=6), COUNT))
    with pytest.raises(MaskError, match="1 or 5, 7"):
        attention_weights(query, key, bias=bias_with_prefix_keys(normal(T, S + COUNT), COUNT))
    with pytest.raises(MaskError, match="11 keys stand before the context, but there are only 10"):
        attention_weights(query, key, mask=mask_with_prefix_keys(masks.window(1), 11))
