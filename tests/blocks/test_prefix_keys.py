"""Masks and biases of the context, with prefix keys before it."""

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
    "dense": masks.dense(torch.rand(B, 1, T, S, generator=torch.Generator().manual_seed(1)) > 0.5),
    "combined": masks.causal() & masks.padding([4, 7]),
    "or": masks.causal() | masks.prefix(2),
    "not": ~masks.window(1),
    "fully masked": masks.prefix(0),
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
        "dense": normal(B, 1, T, S),
        "combined": positions.alibi(4) + normal(T, S),
    }


@pytest.mark.parametrize("name", MASKS)
def test_prefix_keys_are_always_visible_and_the_context_is_masked(name: str) -> None:
    outer = mask_with_prefix_keys(MASKS[name], COUNT)
    assert outer is not None
    seen = outer.to_dense(OUTER).expand(OUTER)
    assert seen[..., :COUNT].all()
    assert torch.equal(seen[..., COUNT:], MASKS[name].to_dense(SIZES).expand(SIZES))


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("columns", TILES, ids=str)
def test_tiles_and_ranges_match_the_dense_mask(name: str, columns: range) -> None:
    outer = mask_with_prefix_keys(MASKS[name], COUNT)
    assert outer is not None
    whole = outer.to_dense(OUTER).expand(OUTER)
    tile = Tile(range(B), range(H), range(1, 4), columns, T, S + COUNT, DEVICE)
    part = whole[:, :, 1:4, columns.start : columns.stop]
    assert torch.equal(outer.tile(tile).expand_as(part), part)
    assert torch.equal(outer.mask_mod(*tile.indices(), tile.shift).expand_as(part), part)
    visible, full = outer.visible_range(tile), outer.full_range(tile)
    for j in columns:
        column = whole[:, :, 1:4, j]
        assert j in visible or not column.any()
        assert j not in full or column.all()
    assert outer.every_row_visible(T, S + COUNT)


BACKENDS = [(name, backend) for name in biases() for backend in ("reference", "tiled", "sdpa")]
BACKENDS.remove(("shaw with values", "sdpa"))  # torch's kernels have no relative values


@pytest.mark.parametrize(("name", "backend"), BACKENDS)
def test_a_bias_applies_to_the_context_only_on_every_backend(name: str, backend: Any) -> None:
    bias = as_bias(biases()[name])
    query, key, value = normal(B, H, T, 6), normal(B, H, S, 6), normal(B, H, S, 6)
    prefix_key, prefix_value = normal(B, H, COUNT, 6), normal(B, H, COUNT, 6)
    keys, values = torch.cat([prefix_key, key], 2), torch.cat([prefix_value, value], 2)
    for mask in (None, MASKS["combined"]):
        seen = torch.ones(SIZES, dtype=torch.bool) if mask is None else mask.to_dense(SIZES).expand(SIZES)
        context = biased_scores(query, key, bias).masked_fill(~seen, -torch.inf)
        weights = torch.cat([query @ prefix_key.mT / 6**0.5, context], -1).softmax(-1)
        expected = weights @ values
        added = bias.relative_values(weights[..., COUNT:], Tile.whole(SIZES, DEVICE))
        expected = expected if added is None else expected + added
        options: Any = {"mask": mask_with_prefix_keys(mask, COUNT), "bias": bias_with_prefix_keys(bias, COUNT)}
        assert_close(attention(query, keys, values, **options, backend=backend), expected)
        assert_close(attention_weights(query, keys, **options), weights)


def biased_scores(query: Tensor, key: Tensor, bias: Any) -> Tensor:
    return query @ key.mT / 6**0.5 + bias.tile(query, key, 6**-0.5, Tile.whole(SIZES, DEVICE))


@pytest.mark.parametrize("name", ["alibi", "t5", "dense", "combined"])
def test_score_mod_and_tile_of_a_bias_agree(name: str) -> None:
    outer = bias_with_prefix_keys(biases()[name], COUNT)
    assert outer is not None
    score_mod, tile = outer.score_mod(T, S + COUNT), Tile.whole(OUTER, DEVICE)
    assert score_mod is not None
    query, key = normal(B, H, T, 6), normal(B, H, S + COUNT, 6)
    whole = outer.tile(query, key, 1.0, tile).expand(OUTER)
    zeros = torch.zeros(OUTER, dtype=whole.dtype)
    assert_close(score_mod(zeros, *torch.broadcast_tensors(*tile.indices())).to(whole), whole)


def test_a_content_dependent_bias_has_no_score_mod() -> None:
    outer = bias_with_prefix_keys(biases()["shaw"], COUNT)
    assert outer is not None and outer.score_mod(T, S + COUNT) is None


def test_the_bias_of_a_tile_of_prefix_keys_is_zero() -> None:
    outer = bias_with_prefix_keys(biases()["transformer_xl"], COUNT)
    assert outer is not None
    tile = Tile(range(B), range(H), range(T), range(0, 2), T, S + COUNT, DEVICE)
    numbers = outer.tile(normal(B, H, T, 6), normal(B, H, 2, 6), 1.0, tile)
    assert numbers.eq(0).all() and numbers.shape[-1] == 2


def test_a_causal_mask_stays_causal_and_none_stays_none() -> None:
    assert mask_with_prefix_keys(masks.causal(), COUNT) == masks.causal()
    assert mask_with_prefix_keys(None, COUNT) is None
    assert bias_with_prefix_keys(None, COUNT) is None


def test_str_of_masks_and_biases_with_prefix_keys() -> None:
    assert str(mask_with_prefix_keys(masks.window(1), 3)) == "(window(1, 0) after 3 prefix keys)"
    assert str(bias_with_prefix_keys(positions.alibi(2), 3)) == "(alibi after 3 prefix keys)"


def test_a_mask_or_bias_of_another_size_raises_an_error() -> None:
    query, key = normal(B, H, T, 6), normal(B, H, S + COUNT, 6)
    with pytest.raises(MaskError, match="this padding mask is for 6 keys, got 7 keys"):
        attention_weights(query, key, mask=mask_with_prefix_keys(masks.padding([4, 6], side="left", length=6), COUNT))
    with pytest.raises(MaskError, match="1 or 5, 7"):
        attention_weights(query, key, bias=bias_with_prefix_keys(normal(T, S + COUNT), COUNT))
    with pytest.raises(MaskError, match="expected at least 11 prefix keys, got 10 keys in all"):
        attention_weights(query, key, mask=mask_with_prefix_keys(masks.window(1), 11))
