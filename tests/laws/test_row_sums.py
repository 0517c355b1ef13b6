"""What holds of every row of the map: it is a share-out, and the output is an average."""

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
    close(weights.sum(-1), case.seen().any(-1).to(weights.dtype))


@given(cases(), st.sampled_from([0.0, -2.0, 1.5]))
def test_a_sink_takes_its_share_and_the_rows_sum_to_what_is_left(case: Case, sink: float) -> None:
    alone = case.but(sink=None)
    lse = attention_scores(case.query, case.key, **alone.options).logsumexp(-1)
    left = lse.exp() / (lse.exp() + torch.tensor(sink, device=DEVICE, dtype=lse.dtype).exp())
    close(case.weights(sink=sink).sum(-1), left)
    close(case.weights(sink=sink), alone.weights() * left[..., None])


@given(cases())
def test_masked_keys_have_zero_weight(case: Case) -> None:
    assert case.weights()[~case.seen()].eq(0).all()
    assert case.weights()[case.seen()].gt(0).all()


@given(cases(without=("sink",)))
def test_every_output_lies_between_the_values_that_are_seen(case: Case) -> None:
    repeats = case.query.shape[1] // case.key.shape[1]
    values = case.value.repeat_interleave(repeats, 1)[:, :, None]  # (B, H, 1, S, E)
    hidden = ~case.seen()[..., None]
    low, high = values.masked_fill(hidden, torch.inf).amin(3), values.masked_fill(hidden, -torch.inf).amax(3)
    sees = case.seen().any(-1)
    output = case.attend()
    assert output[sees].ge(low[sees] - 1e-12).all()
    assert output[sees].le(high[sees] + 1e-12).all()
    assert output[~sees].eq(0).all()


@given(cases(without=("sink",)))
def test_adding_one_number_to_a_whole_row_of_scores_changes_nothing(case: Case) -> None:
    B, H, T, S = case.sizes
    row = 5 * case.made.normal(B, H, T, 1).expand(B, H, T, S)
    bias = case.options.get("bias")
    shifted = case.but(bias=row if bias is None else as_bias(bias) + row)
    close(shifted.attend(), case.attend())


@given(cases(without=("sink", "scale", "softcap", "score")))
def test_a_hot_look_is_even_and_a_cold_one_picks_the_best_key(case: Case) -> None:
    alone = case.but(bias=None)
    seen, sees = alone.seen(), alone.seen().any(-1)
    even = seen.to(torch.float64) / seen.sum(-1, keepdim=True).clamp(min=1)
    close(alone.weights(score=scores.scaled_dot(temperature=1e9)), even, 1e-6)

    raw = attention_scores(case.query, case.key, score=scores.dot(), mask=alone.options.get("mask"))
    best = raw.sort(-1, descending=True).values
    gap = (best[..., 0] - best[..., 1]) if best.shape[-1] > 1 else torch.full_like(best[..., 0], torch.inf)
    clear = sees & gap.gt(1e-3)
    cold = alone.weights(score=scores.scaled_dot(temperature=1e-5))
    winner = torch.nn.functional.one_hot(raw.argmax(-1), raw.shape[-1]).to(cold.dtype)
    close(cold[clear], winner[clear])


@given(cases(without=("sink",)))
def test_what_all_keys_receive_together_is_the_number_of_queries_that_see_something(case: Case) -> None:
    received = look(case.query, case.key, **case.options).received
    close(received.sum(-1), case.seen().any(-1).sum(-1).to(received.dtype))
