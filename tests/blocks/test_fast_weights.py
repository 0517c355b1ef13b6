"""Fast-weight layers: state in and out, padding, constant memory."""

import pytest
import torch
from torch.testing import assert_close

from softlook.blocks import DeltaRuleAttention, FastWeightCache, LinearAttention
from softlook.ops.fast_weights import LinearAttentionState

LAYERS = [LinearAttention, DeltaRuleAttention]
Layer = type[LinearAttention] | type[DeltaRuleAttention]


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("chunk", [1, 3, 64])
def test_chunks_match_the_recurrence(layer: Layer, chunk: int) -> None:
    attn, x = layer(16, heads=4, chunk=chunk).double(), torch.randn(2, 10, 16, dtype=torch.float64)
    state = LinearAttentionState()
    steps = [attn(x[:, t : t + 1], state=state) for t in range(10)]
    assert_close(attn(x), torch.cat(steps, 1))


@pytest.mark.parametrize("layer", LAYERS)
def test_padding_is_not_written(layer: Layer) -> None:
    attn, x = layer(16, heads=4), torch.randn(1, 7, 16)
    mask = torch.tensor([[False, False, True, True, False, True, True]])
    assert_close(attn(x, padding_mask=mask)[mask], attn(x[mask][None])[0])
    assert attn(x, padding_mask=mask).isfinite().all()


@pytest.mark.parametrize("layer", LAYERS)
def test_the_size_of_the_state_does_not_depend_on_the_length(layer: Layer) -> None:
    attn, cache, sizes = layer(16, heads=4), FastWeightCache(), []
    for _ in range(3):
        attn(torch.randn(2, 50, 16), state=cache.allocate(1)[0])
        held = (cache.layers[0].weights, cache.layers[0].keys)
        sizes.append(sum(tensor.numel() for tensor in held if tensor is not None))
    assert len(set(sizes)) == 1


@pytest.mark.parametrize("layer", LAYERS)
def test_rows_of_the_state_can_be_selected(layer: Layer) -> None:
    attn, x, rows = layer(16, heads=4), torch.randn(3, 6, 16), torch.tensor([2, 0, 0])
    cache = FastWeightCache()
    attn(x[:, :5], state=cache.allocate(1)[0])
    cache.reorder(rows)
    assert_close(attn(x[rows, 5:], state=cache.layers[0]), attn(x)[rows, 5:])


def test_the_delta_rule_can_change_what_a_key_returns_and_the_sum_cannot() -> None:
    """The same token again changes the mean of linear attention not at all; a rate of one replaces the value."""
    attn = DeltaRuleAttention(8, heads=1)
    with torch.no_grad():
        attn.to_rate.weight.zero_()
        attn.to_rate.bias.fill_(100.0)  # a rate of one
        attn.to_query.weight.copy_(attn.to_key.weight)
    x = torch.randn(1, 1, 8).expand(1, 4, 8)
    assert_close(attn(x), attn.to_out(attn.to_value(x)))
