"""Tiles, overviews and lanes are those of the dense map, under every mask."""

import time

import pytest
import torch
from torch import Tensor
from torch.nn.functional import max_pool2d, pad
from torch.testing import assert_close

from softlook import masks
from softlook.base.errors import DataError
from softlook.blocks.attention import AttentionCore
from softlook.lens.attention_trace import AttentionCall, AttentionTrace
from softlook.ops.masks import Mask
from softlook.studio.answers import cells, maps, rows
from softlook.studio.frames import decode_frame

N = 300
EDGES = torch.randint(N, (2, 900), generator=torch.Generator().manual_seed(0))
MASKS: dict[str, Mask | None] = {
    "none": None,
    "causal": masks.causal(),
    "window": masks.window(20),
    "both sides": masks.window(5, 3),
    "prefix": masks.prefix(40),
    "padding": masks.padding(torch.tensor([200])),
    "documents": masks.documents(torch.arange(N)[None] // 70),
    "graph": masks.graph(EDGES, loops=True),
    "dense": masks.dense(torch.rand(1, 1, N, N, generator=torch.Generator().manual_seed(1)) > 0.3),
    "function": masks.from_function(lambda b, h, i, j: (i - j) % 3 == 0),
    "combined": masks.causal() & masks.documents(torch.arange(N)[None] // 90),
    "inverted": ~masks.window(4, 4),
}


def layer(mask: Mask | None, tokens: int = N, heads: int = 2, dim: int = 8) -> AttentionTrace:
    query, key = torch.randn(2, 1, heads, tokens, dim, generator=torch.Generator().manual_seed(2)) * 1.5
    return AttentionTrace([AttentionCall(AttentionCore(), query, key, mask, None, key.norm(dim=-1))])


def dense(recorded: AttentionTrace) -> Tensor:
    """The map by the definition."""
    call = recorded.calls[0]
    scores = call.query @ call.key.mT * call.query.shape[-1] ** -0.5
    if call.args.mask is not None:
        visible = call.args.mask.to_dense(call.args.sizes)
        scores = scores.masked_fill(~visible, -torch.inf)
    return scores.softmax(-1).nan_to_num(0)[0]


def close(found: Tensor, expected: Tensor) -> None:
    """Equal to half a step of the logarithmic scale, and 0 in the same cells."""
    assert torch.equal(found == 0, expected <= 0)
    shown = expected > 1e-6
    assert_close(found[shown], expected[shown], rtol=0.03, atol=0)


@pytest.mark.parametrize("name", MASKS)
def test_tiles_equal_the_dense_map(name: str) -> None:
    recorded = layer(MASKS[name])
    whole = dense(recorded)[1]
    tiles = [
        [decode_frame(maps.tile(recorded, head="1", level=0, row=row, column=column)) for column in range(2)]
        for row in range(2)
    ]
    assert {tile.statistic for line in tiles for tile in line} == {"exact"}
    close(torch.cat([torch.cat([tile.values for tile in line], 1) for line in tiles]), whole)
    pooled = decode_frame(maps.tile(recorded, head="1", level=2, row=0, column=0))
    close(pooled.values, max_pool2d(whole[None], 4, ceil_mode=True)[0])
    assert pooled.statistic == "max"


@pytest.mark.parametrize("name", MASKS)
def test_frames_of_weights_lanes_and_scores_equal_the_dense_map(name: str) -> None:
    recorded = layer(MASKS[name])
    whole = dense(recorded)
    assert_close(
        decode_frame(maps.weights(recorded, head="-1", rows="10:20")).values, whole[:, 10:20], atol=1e-6, rtol=1e-4
    )
    assert_close(decode_frame(maps.weights(recorded, head="mean")).values, whole.mean(0), atol=1e-6, rtol=1e-4)
    lanes = rows.lanes(recorded, head="0")
    assert_close(torch.tensor(lanes["entropy"]), -torch.xlogy(whole[0], whole[0]).sum(-1), atol=1e-4, rtol=1e-4)
    assert_close(torch.tensor(lanes["received_mass"]), whole[0].sum(0), atol=1e-4, rtol=1e-4)
    frame = decode_frame(cells.scores(recorded, head="0", row=150))
    weights = (frame.values - frame.offset).exp() if frame.offset > -torch.inf else torch.zeros(N)
    assert_close(weights, whole[0, 150], atol=1e-6, rtol=1e-4)


def test_the_overview_holds_every_head_and_never_loses_a_column() -> None:
    recorded = layer(masks.causal())
    call = recorded.calls[0]
    call.key[:, :, 7] = 4 * call.query.mean(2)
    frame = decode_frame(maps.overview([recorded, layer(None, tokens=40, heads=3)], 32))
    assert frame.values.shape == (5, 30, 30)
    assert frame.statistic == "max"
    close(frame.values[0], max_pool2d(dense(recorded)[:1], 10, ceil_mode=True)[0])
    assert (frame.values[2:, 20:] == 0).all()


def test_strong_columns_and_diagonals_are_found() -> None:
    recorded = layer(masks.causal())
    call = recorded.calls[0]
    call.query[..., 0] = 4
    call.key[:, :, 7, 0] = 6
    found = rows.strong(recorded, head="0")
    column, mass = found["columns"][0]
    assert (column, found["statistic"]) == (7, "exact")
    assert mass == pytest.approx(dense(recorded)[0].mean(0)[7].item(), rel=1e-3)
    whole = dense(recorded)[0]
    for offset, mean in found["diagonals"]:
        assert mean == pytest.approx(whole.diagonal(-offset).mean().item(), abs=1e-5)


def test_tiles_that_are_not_there_are_errors() -> None:
    recorded = layer(None)
    for level, row, column in ((0, 2, 0), (9, 0, 1), (40, 0, 1)):
        with pytest.raises(DataError, match="has no tile"):
            maps.tile(recorded, head="0", level=level, row=row, column=column)
    with pytest.raises(DataError, match="from 0 to 1"):
        maps.tile(recorded, head="2", level=0, row=0, column=0)
    with pytest.raises(DataError, match="first:stop"):
        maps.weights(recorded, head="0", rows="400:500")


def test_a_map_of_32_thousand_tokens_answers_from_a_sample_and_says_so() -> None:
    tokens = 32_768
    recorded = layer(masks.causal(), tokens, heads=1, dim=16)
    start = time.perf_counter()
    near = decode_frame(maps.tile(recorded, head="0", level=0, row=100, column=99))
    far = decode_frame(maps.tile(recorded, head="0", level=7, row=0, column=0))
    small = decode_frame(maps.overview([recorded], 64))
    assert time.perf_counter() - start < 30  # a fraction of a second on an idle machine; the whole map takes minutes
    assert (near.statistic, far.statistic, small.statistic) == ("exact", "sampled", "sampled")
    assert small.values.shape == (1, 64, 64)
    call = recorded.calls[0]
    row = (call.query[0, 0, 25_600] @ call.key[0, 0, :25_601].mT / 4).softmax(-1)
    close(near.values[0], row[25_344:25_600])
    sampled = pad((call.query[0, 0, 128] @ call.key[0, 0, :129].mT / 4).softmax(-1), (0, 127))
    close(far.values[1, :2], sampled.view(2, 128).amax(1))
