"""Rows of the attention map are distributions over the visible keys, and outputs are weighted averages."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from softlook import attention_scores, look, scores
from softlook.ops.bias import as_bias
from tests.ops_cases import DEVICE, Case, cases, close


@given(cases(without=("sink",)))
def test_rows_sum_to_one_or_to_zero_where_fully_masked(case: Case) -> None:
    weights = case.weights()
    assert weights.ge(0).all()
    close(weights.sum(-1), case.visible().any(-1).to(weights.dtype))


@given(cases(), st.sampled_from([0.0, -2.0, 1.5]))
def test_a_sink_scales_every_row_by_the_remaining_probability(case: Case, sink: float) -> None:
    alone = case.replace(sink=None)
    lse = attention_scores(case.query, case.key, **alone.options).logsumexp(-1)
    remaining = lse.exp() / (lse.exp() + torch.tensor(sink, device=DEVICE, dtype=lse.dtype).exp())
    close(case.weights(sink=sink).sum(-1), remaining)
    close(case.weights(sink=sink), alone.weights() * remaining[..., None])


@given(cases())
def test_masked_keys_have_zero_weight(case: Case) -> None:
    assert case.weights()[~case.visible()].eq(0).all()
    assert case.weights()[case.visible()].gt(0).all()


@given(cases(without=("sink",)))
def test_every_output_lies_in_the_range_of_the_visible_values(case: Case) -> None:
    group_size = case.query.shape[1] // case.key.shape[1]
    values = case.value.repeat_interleave(group_size, 1)[:, :, None]  # (B, H, 1, S, E)
    hidden = ~case.visible()[..., None]
    low, high = values.masked_fill(hidden, torch.inf).amin(3), values.masked_fill(hidden, -torch.inf).amax(3)
    has_keys = case.visible().any(-1)
    output = case.attend()
    assert output[has_keys].ge(low[has_keys] - 1e-12).all()
    assert output[has_keys].le(high[has_keys] + 1e-12).all()
    assert output[~has_keys].eq(0).all()


@given(cases(without=("sink",)))
def test_adding_a_constant_to_a_row_of_scores_changes_nothing(case: Case) -> None:
    B, H, T, S = case.sizes
    row = 5 * case.rng.normal(B, H, T, 1).expand(B, H, T, S)
    bias = case.options.get("bias")
    shifted = case.replace(bias=row if bias is None else as_bias(bias) + row)
    close(shifted.attend(), case.attend())


@given(cases(without=("sink", "scale", "softcap", "score")))
def test_weights_are_uniform_at_high_temperature_and_one_hot_at_low_temperature(case: Case) -> None:
    alone = case.replace(bias=None)
    seen, has_keys = alone.visible(), alone.visible().any(-1)
    even = seen.to(torch.float64) / seen.sum(-1, keepdim=True).clamp(min=1)
    close(alone.weights(score=scores.scaled_dot(temperature=1e9)), even, 1e-6)

    raw = attention_scores(case.query, case.key, score=scores.dot(), mask=alone.options.get("mask"))
    best = raw.sort(-1, descending=True).values
    gap = (best[..., 0] - best[..., 1]) if best.shape[-1] > 1 else torch.full_like(best[..., 0], torch.inf)
    untied = has_keys & gap.gt(1e-3)
    cold = alone.weights(score=scores.scaled_dot(temperature=1e-5))
    one_hot = torch.nn.functional.one_hot(raw.argmax(-1), raw.shape[-1]).to(cold.dtype)
    close(cold[untied], one_hot[untied])


@given(cases(without=("sink",)))
def test_the_total_received_weight_is_the_number_of_queries_with_visible_keys(case: Case) -> None:
    received = look(case.query, case.key, **case.options).received
    close(received.sum(-1), case.visible().any(-1).sum(-1).to(received.dtype))
