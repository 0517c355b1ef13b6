"""Masks, looks and traces are shown as figures."""

import pytest
import torch

from softlook import look, masks
from softlook.base.errors import MaskError
from softlook.blocks import SelfAttention
from softlook.lens import trace
from softlook.lens.figures.summaries import fitting_sizes, look_figure, mask_figure, trace_figure
from softlook.models import Transformer, TransformerConfig
from softlook.ops.masks import Mask
from tests.lens.figures.test_labels import colliding, outside

MASKS = [
    masks.causal(),
    masks.window(2, 1),
    masks.causal() | masks.prefix(3),
    ~masks.causal(),
    masks.padding([2, 5, 3]),
    masks.documents(torch.tensor([0, 0, 1, 1, 1])),
    masks.graph(torch.tensor([[0, 2], [1, 0]])),
    masks.dense(torch.rand(20, 20) > 0.5),
]


@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_the_figure_of_a_mask_shows_its_pairs(mask: Mask) -> None:
    figure, sizes = mask_figure(mask), fitting_sizes(mask)
    assert torch.equal(figure.numbers["visible"], mask.to_dense(sizes).expand(sizes))
    assert colliding(figure) == [] and outside(figure) == []
    assert mask._repr_html_()


def test_a_mask_that_fits_no_square_map_needs_its_sizes() -> None:
    mask = masks.dense(torch.rand(3, 5) > 0.5)
    with pytest.raises(MaskError, match="name its sizes="):
        mask_figure(mask)
    assert mask_figure(mask, (1, 1, 3, 5)).numbers["visible"].shape == (1, 1, 3, 5)
    assert mask._repr_html_() is None  # IPython then prints its repr


def test_the_figure_of_a_look_shows_its_statistics() -> None:
    result = look(*torch.randn(2, 2, 3, 50, 4), stats=("entropy", "received", "pooled_mean"), bins=5)
    figure = look_figure(result, sequence=1)
    assert list(figure.numbers) == ["entropy", "received"]
    assert torch.equal(figure.numbers["entropy"], result.entropy[1])
    assert colliding(figure) == [] and outside(figure) == []


def test_the_figure_of_a_trace_lists_its_layers() -> None:
    model = Transformer(TransformerConfig(vocab_size=10, dim=16, depth=2, heads=2)).eval()
    with torch.no_grad(), trace(model) as recorded:
        model(torch.zeros(1, 5, dtype=torch.long), torch.zeros(1, 3, dtype=torch.long))
    figure = trace_figure(recorded)
    assert ("decoder.blocks.1.cross_attn", 1, 2, 3, 5) in figure.numbers["layers"]
    assert len(figure.numbers["layers"]) == 6 and colliding(figure) == []


def test_notebooks_show_masks_looks_and_traces() -> None:
    with trace(SelfAttention(8, heads=2)) as recorded:
        pass
    for value in (masks.causal(), look(*torch.randn(2, 1, 1, 5, 4)), recorded):
        assert "svg" in (value._repr_html_() or "")
