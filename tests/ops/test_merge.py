"""Merging outputs and looks over chunks of the keys into those over all keys."""

from typing import Any

import pytest
import torch

from softlook import Look, attention, attention_with_lse, look, masks
from softlook.ops.merge import merge_looks, merge_outputs
from tests.ops_cases import DEVICE, TensorRNG, close

RNG = TensorRNG(torch.Generator().manual_seed(19), torch.float64)
QUERY, KEY, VALUE = RNG.normal(1, 2, 3, 4), RNG.normal(1, 1, 7, 4), RNG.normal(1, 1, 7, 2)
SPANS = [(0, 3), (3, 4), (4, 7)]


def chunks(*stats: str, **options: Any) -> list[Look]:
    return [look(QUERY, KEY[:, :, a:b], part=(a, 7), stats=stats, **options) for a, b in SPANS]


def test_merging_looks_without_lse_raises_an_error() -> None:
    with pytest.raises(ValueError, match=r"needs 'lse' among the stats of each chunk, got \['entropy'\]"):
        merge_looks(chunks("entropy"))


def test_merging_looks_with_different_stats_raises_an_error() -> None:
    with pytest.raises(ValueError, match=r"expects equal stats, got \[\['lse'\], \['entropy', 'lse'\]\]"):
        merge_looks([chunks("lse")[0], chunks("lse", "entropy")[1]])


def test_merging_no_looks_raises_an_error() -> None:
    with pytest.raises(ValueError, match="at least one look, got none"):
        merge_looks([])


def test_one_look_merges_to_itself() -> None:
    whole = look(QUERY, KEY, stats=("lse", "entropy", "effective_keys", "max_weight", "mean_distance"))
    merged = merge_looks([whole])
    for name in whole.values:
        close(merged.values[name], whole.values[name])


@pytest.mark.parametrize("name", ["entropy", "effective_keys", "max_weight", "mean_distance", "top_weights"])
def test_a_merged_look_holds_the_requested_statistics(name: str) -> None:
    requested = {name, "lse"}
    merged = merge_looks(chunks(*requested, top_k=4))
    assert set(merged.values) == requested
    close(merged.values[name], look(QUERY, KEY, stats=(name,), top_k=4).values[name])


def test_merging_top_indices_needs_top_weights() -> None:
    with pytest.raises(ValueError, match="top_weights"):
        merge_looks(chunks("lse", "top_indices"))


def test_top_weights_of_all_chunks_are_merged_with_their_indices() -> None:
    merged = merge_looks(chunks("lse", "top_weights", "top_indices", top_k=4))
    whole = look(QUERY, KEY, stats=("top_weights", "top_indices"), top_k=4)
    close(merged.top_weights, whole.top_weights)
    assert merged.top_indices.equal(whole.top_indices)


def test_statistics_per_key_are_merged_with_the_total_log_sum_exp() -> None:
    total = merge_looks(chunks("lse")).lse
    merged = merge_looks(chunks("received", "pooled_mean", "pooled_max", lse=total, bins=2))
    whole = look(QUERY, KEY, stats=("received", "pooled_mean", "pooled_max"), bins=2)
    for name in whole.values:
        close(merged.values[name], whole.values[name])


def test_mix_and_spread_of_chunks_with_the_total_log_sum_exp_add_up() -> None:
    total = merge_looks(chunks("lse")).lse
    seen = chunks("received", lse=total)
    mixed = sum(chunk.mix(VALUE[:, :, a:b]) for chunk, (a, b) in zip(seen, SPANS, strict=True))
    assert isinstance(mixed, torch.Tensor)
    close(mixed, attention(QUERY, KEY, VALUE))
    amounts = RNG.normal(1, 2, 3, 2)
    close(torch.cat([chunk.spread(amounts) for chunk in seen], 2), look(QUERY, KEY).spread(amounts))


def test_outputs_of_chunks_merge_into_the_output_over_all_keys() -> None:
    looks = chunks("lse")
    outputs = [attention(QUERY, KEY[:, :, a:b], VALUE[:, :, a:b]) for a, b in SPANS]
    close(merge_outputs(outputs, [chunk.lse for chunk in looks]), attention(QUERY, KEY, VALUE))
    halves = [output.bfloat16() for output in outputs]
    assert merge_outputs(halves, [chunk.lse for chunk in looks]).dtype == torch.bfloat16


def test_a_fully_masked_chunk_adds_nothing() -> None:
    zero, nothing = torch.zeros(1, 2, 3, 2, device=DEVICE).double(), torch.full((1, 2, 3), -torch.inf, device=DEVICE)
    output, lse = attention(QUERY, KEY, VALUE), look(QUERY, KEY).lse
    close(merge_outputs([output, zero], [lse, nothing.double()]), output)
    assert merge_outputs([zero, zero], [nothing, nothing]).eq(0).all()


def test_outputs_and_lses_must_have_the_same_number() -> None:
    with pytest.raises(ValueError):
        merge_outputs([torch.zeros(1, 1, 1, 1)], [torch.zeros(1, 1, 1)] * 2)


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"mask": masks.causal()},
    "softcap": {"softcap": 2.0},
    "sink": {"sink": 0.5},
    "fully masked row": {"mask": masks.padding([0])},
    "empty": {"mask": masks.causal()},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_attention_with_lse_returns_the_output_and_the_log_sum_exp(name: str) -> None:
    rows = 0 if name == "empty" else 3
    query, key = RNG.normal(1, 4, rows, 8), RNG.normal(1, 2, 5, 8)
    output, lse = attention_with_lse(query, key, key, **OPTIONS[name])
    close(output, attention(query, key, key, **OPTIONS[name]), 1e-6)
    close(lse, look(query, key, stats=("lse",), **OPTIONS[name]).lse, 1e-6)


def test_merged_outputs_have_the_gradients_of_attention_over_all_keys() -> None:
    tensors = [RNG.normal(1, 2, n, 4).requires_grad_() for n in (3, 6, 6)]
    query, key, value = tensors
    halves = [attention_with_lse(query, key[:, :, p], value[:, :, p]) for p in (slice(0, 2), slice(2, 6))]
    outputs = (merge_outputs(*zip(*halves, strict=True)), attention(query, key, value))
    close(*outputs, 1e-6)
    for one, other in zip(*(torch.autograd.grad(o.square().sum(), tensors) for o in outputs), strict=True):
        close(one, other, 1e-5)


def test_an_lse_without_a_gradient_raises_an_error_where_one_is_needed() -> None:
    query = RNG.normal(1, 2, 3, 4).requires_grad_()
    output, lse = attention_with_lse(query, query, query)
    with pytest.raises(ValueError, match="output 0 requires a gradient, but its lse does not"):
        merge_outputs([output], [lse.detach()])
    with torch.no_grad():
        close(merge_outputs([output], [lse.detach()]), output)
    frozen, value = query.detach(), query.detach().clone().requires_grad_()
    merge_outputs(*zip(attention_with_lse(frozen, frozen, value), strict=True)).sum().backward()
    assert value.grad is not None
