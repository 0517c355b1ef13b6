"""Fast weights by the delta rule: the recurrence, the chunked form, and what a key returns."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import normalize
from torch.testing import assert_close

from softlook import ShapeError
from softlook.ops.delta_rule import delta_rule
from softlook.ops.fast_weights import LinearAttentionState
from tests.ops_cases import DEVICE


def random_steps(heads: int, steps: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    query, key, value = torch.randn(3, 2, heads, steps, 4, dtype=torch.float64, device=DEVICE)
    return query, normalize(key, dim=-1), value, torch.rand(2, heads, steps, dtype=torch.float64, device=DEVICE)


def by_the_formula(query: Tensor, key: Tensor, value: Tensor, rate: Tensor) -> Tensor:
    """W_t = W_(t-1) + rate k (v - k W_(t-1)), one step after the other."""
    weights, outputs = torch.zeros(*key.shape[:2], 4, 4, dtype=torch.float64, device=DEVICE), []
    for t in range(key.shape[2]):
        k, v = key[:, :, t, :, None], value[:, :, t, None]
        weights = weights + rate[:, :, t, None, None] * k * (v - k.mT @ weights)
        outputs.append(query[:, :, t, None] @ weights)
    return torch.cat(outputs, 2)


@given(st.integers(1, 3), st.integers(1, 20), st.integers(1, 9))
def test_chunks_match_the_recurrence(heads: int, steps: int, chunk: int) -> None:
    inputs = random_steps(heads, steps)
    assert_close(delta_rule(*inputs, chunk=chunk), by_the_formula(*inputs))


@given(st.integers(1, 12), st.integers(0, 12))
def test_a_state_carries_the_past(steps: int, split: int) -> None:
    inputs, state = random_steps(2, steps), LinearAttentionState()
    parts = [[one[:, :, :split] for one in inputs], [one[:, :, split:] for one in inputs]]
    assert_close(torch.cat([delta_rule(*part, chunk=5, state=state) for part in parts], 2), delta_rule(*inputs))


def test_the_last_value_written_under_a_key_is_returned() -> None:
    key = torch.eye(4, device=DEVICE).repeat(3, 1)[None, None]
    value, query = torch.randn(1, 1, 12, 4, device=DEVICE), torch.zeros(1, 1, 12, 4, device=DEVICE)
    state = LinearAttentionState()
    delta_rule(query, key, value, torch.ones(1, 1, 12, device=DEVICE), state=state)
    assert_close(state.read(key[:, :, :4]), value[:, :, 8:])


def test_a_rate_of_zero_writes_nothing() -> None:
    query, key, value, rate = random_steps(1, 6)
    rate[:, :, 3] = 0
    kept = [0, 1, 2, 4, 5]
    without = delta_rule(query[:, :, kept], key[:, :, kept], value[:, :, kept], rate[:, :, kept])
    assert_close(delta_rule(query, key, value, rate)[:, :, kept], without)


def test_changing_the_future_does_not_change_the_past() -> None:
    query, key, value, rate = random_steps(2, 7)
    before = delta_rule(query, key, value, rate, chunk=3)
    key[:, :, 5:], value[:, :, 5:] = 0.5, 9
    assert_close(delta_rule(query, key, value, rate, chunk=3)[:, :, :5], before[:, :, :5])


def test_gradients_flow_through_both_forms() -> None:
    inputs = [one[:1].requires_grad_() for one in random_steps(1, 5)]
    for chunk in (1, 2):
        assert torch.autograd.gradcheck(lambda *steps, chunk=chunk: delta_rule(*steps, chunk=chunk), inputs)


def test_no_steps_give_an_empty_output() -> None:
    empty = torch.zeros(1, 2, 0, 4, device=DEVICE)
    assert delta_rule(empty, empty, empty, empty[..., 0]).shape == (1, 2, 0, 4)


@pytest.mark.usefixtures("no_shape_checks")
def test_mismatched_shapes_raise_an_error() -> None:
    query = torch.randn(1, 2, 5, 4)
    with pytest.raises(ShapeError, match="a rate for each step"):
        delta_rule(query, query, query, torch.ones(1, 2, 4))
    with pytest.raises(ValueError, match="chunk expects an integer >= 1, got 0"):
        delta_rule(query, query, query, torch.ones(1, 2, 5), chunk=0)
