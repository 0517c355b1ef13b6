"""Linear attention with fast weights: the recurrent form and the chunked form."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from softlook import ShapeError, fast_weights
from softlook.ops.fast_weights import LinearAttentionState
from tests.ops_cases import DEVICE


@given(st.integers(1, 3), st.integers(1, 20), st.integers(1, 9), st.booleans())
def test_chunks_match_the_recurrence(heads: int, steps: int, chunk: int, normalize: bool) -> None:
    query, key, value = torch.randn(3, 2, heads, steps, 4, dtype=torch.float64, device=DEVICE)
    feature_map = torch.nn.functional.softplus
    recurrent = fast_weights(query, key, value, feature_map=feature_map, normalize=normalize, chunk=1)
    chunked = fast_weights(query, key, value, feature_map=feature_map, normalize=normalize, chunk=chunk)
    torch.testing.assert_close(chunked, recurrent)


def test_each_step_sums_over_all_steps_up_to_it() -> None:
    query, key, value = torch.randn(3, 1, 2, 7, 4, dtype=torch.float64, device=DEVICE)
    torch.testing.assert_close(fast_weights(query, key, value), (query @ key.mT).tril() @ value)


def test_changing_the_future_does_not_change_the_past() -> None:
    query, key, value = torch.randn(3, 1, 2, 7, 4, dtype=torch.float64, device=DEVICE)
    before = fast_weights(query, key, value, chunk=3)
    key[:, :, 5:], value[:, :, 5:] = 9, 9
    torch.testing.assert_close(fast_weights(query, key, value, chunk=3)[:, :, :5], before[:, :, :5])


def test_the_state_returns_what_was_written() -> None:
    key, value = torch.eye(4, device=DEVICE).view(1, 1, 4, 4), torch.randn(1, 1, 4, 3, device=DEVICE)
    state = LinearAttentionState()
    with pytest.raises(ValueError, match="the state is empty"):
        state.read(key)
    state.write(key[:, :, :2], value[:, :, :2])
    state.write(key[:, :, 2:], value[:, :, 2:])
    torch.testing.assert_close(state.read(key), value)


def test_gradients_flow_through_both_forms() -> None:
    inputs = [torch.randn(1, 1, 5, 3, dtype=torch.float64, device=DEVICE, requires_grad=True) for _ in range(3)]
    for chunk in (1, 2):
        assert torch.autograd.gradcheck(lambda *qkv, chunk=chunk: fast_weights(*qkv, chunk=chunk), inputs)


def test_no_steps_give_an_empty_output() -> None:
    empty = torch.zeros(1, 2, 0, 4, device=DEVICE)
    assert fast_weights(empty, empty, empty).shape == (1, 2, 0, 4)


@pytest.mark.usefixtures("no_shape_checks")
def test_mismatched_shapes_raise_an_error() -> None:
    query = torch.randn(1, 2, 5, 4)
    with pytest.raises(ShapeError, match="a query, a key and a value for each step and head"):
        fast_weights(query, query, query[:, :, :4])
    with pytest.raises(ValueError, match="chunk expects an integer >= 1, got 0"):
        fast_weights(query, query, query, chunk=0)
