"""Transformer-XL: segment-level recurrence."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from softlook import masks
from softlook.blocks import RelativeAttention, SegmentCache
from softlook.models import TransformerXL, TransformerXLConfig
from softlook.weights import load, save
from tests.parity.comparison import maps

IDS = torch.tensor([[5, 3, 8, 1, 9, 2, 7, 0], [4, 4, 0, 6, 1, 3, 2, 2]])
VARIANTS: list[dict[str, Any]] = [
    {"pre_norm": pre, "share_biases": shared, "max_distance": max_distance}
    for pre, shared, max_distance in product((False, True), (False, True), (None, 3))
]


def small(**changes: Any) -> TransformerXL:
    sizes: dict[str, Any] = {"vocab_size": 10, "dim": 8, "depth": 3, "heads": 2, "hidden": 12}
    model = TransformerXL(TransformerXLConfig(**sizes | changes)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


def config_id(changes: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in changes.items())


@pytest.mark.parametrize("changes", VARIANTS, ids=config_id)
@pytest.mark.parametrize("ends", [(4, 8), (3, 4, 8), (1, 2, 3, 4, 5, 6, 7, 8)], ids=str)
def test_segments_with_a_sufficient_cache_equal_one_pass(changes: dict[str, Any], ends: tuple[int, ...]) -> None:
    model, cache = small(**changes), SegmentCache(8)
    parts = [model(IDS[:, start:stop], cache=cache) for start, stop in zip((0, *ends), ends, strict=False)]
    assert_close(torch.cat(parts, 1), model(IDS))


def test_rows_can_be_copied_dropped_and_reordered_between_segments() -> None:
    model, cache, rows = small(), SegmentCache(8), torch.tensor([1, 0, 1])
    model(IDS[:, :5], cache=cache)
    cache.reorder(rows)
    assert_close(model(IDS[rows, 5:], cache=cache), model(IDS)[rows, 5:])


def test_an_empty_cache_does_not_change_the_first_segment() -> None:
    model = small()
    with maps(model) as attention_maps:
        first = model(IDS, cache=SegmentCache(8))
    assert attention_maps[0].shape == (2, 2, 8, 8)
    assert torch.equal(first, model(IDS))


def test_a_short_cache_drops_the_oldest_states() -> None:
    model, cache = small(depth=1), SegmentCache(2)
    model(IDS[:, :5], cache=cache)
    after = model(IDS[:, 5:], cache=cache)
    assert_close(after, model(IDS[:, 3:])[:, 2:])
    assert not torch.allclose(after, model(IDS)[:, 5:])


@pytest.mark.parametrize(("depth", "reaches"), [(2, False), (3, True)])
def test_each_layer_extends_the_context_by_one_cache_length(depth: int, reaches: bool) -> None:
    model, other = small(depth=depth), IDS.clone()
    other[:, 0] = 9 - other[:, 0]
    one, two = SegmentCache(2), SegmentCache(2)
    last = [(model(IDS[:, t : t + 2], cache=one), model(other[:, t : t + 2], cache=two)) for t in range(0, 8, 2)][-1]
    assert (
        torch.equal(*last) != reaches
    )  # the fourth segment depends on the first through three layers, not through two


@pytest.mark.parametrize("changes", VARIANTS, ids=config_id)
def test_changing_the_future_does_not_change_the_past(changes: dict[str, Any]) -> None:
    model, other = small(**changes), IDS.clone()
    other[:, 5:] = 9 - other[:, 5:]
    assert torch.equal(model(IDS)[:, :5], model(other)[:, :5])


def test_no_gradient_flows_into_the_cache() -> None:
    model, cache = small(tie_embeddings=False), SegmentCache(8)
    model(torch.tensor([[1, 2, 3]]), cache=cache)
    model(torch.tensor([[4, 5, 4]]), cache=cache).square().sum().backward()
    gradient = model.token_embedding.weight.grad
    assert gradient is not None
    assert gradient[[1, 2, 3]].eq(0).all()
    assert gradient[[4, 5]].abs().amin(0).max() > 0
    assert not any(states.requires_grad for states in cache.states)


@pytest.mark.parametrize("changes", VARIANTS, ids=config_id)
def test_gradients_reach_every_parameter(changes: dict[str, Any]) -> None:
    model, cache = small(**changes), SegmentCache(8)
    model(IDS[:, :4], cache=cache)
    model(IDS[:, 4:], cache=cache).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name


def test_share_biases_shares_the_biases_of_all_blocks() -> None:
    for shared, count in ((True, 1), (False, 3)):
        layers = [module for module in small(share_biases=shared).modules() if isinstance(module, RelativeAttention)]
        assert len({id(attn.content_bias) for attn in layers}) == count
        assert len({id(attn.position_bias) for attn in layers}) == count


def test_a_mask_is_combined_with_the_causal_mask() -> None:
    model = small()
    documents = masks.documents(torch.tensor([0, 0, 0, 1, 1, 1, 1, 1]))
    packed = model(IDS, mask=documents)
    assert_close(packed[:, :3], model(IDS[:, :3]))
    assert_close(packed[:, 3:], model(IDS[:, 3:]))


def test_distances_beyond_the_maximum_are_clamped() -> None:
    clamped, unlimited = small(max_distance=3, depth=1), small(depth=1)
    unlimited.load_state_dict(clamped.state_dict())
    assert_close(clamped(IDS[:, :4]), unlimited(IDS[:, :4]))
    assert not torch.allclose(clamped(IDS)[:, 7], unlimited(IDS)[:, 7])


@pytest.mark.parametrize("changes", VARIANTS, ids=config_id)
def test_a_saved_model_is_loaded_unchanged(changes: dict[str, Any], tmp_path: Path) -> None:
    model = small(**changes)
    again = load(save(model, tmp_path / "transformer_xl"))
    assert torch.equal(again(IDS), model(IDS))
