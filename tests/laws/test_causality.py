"""Causality: outputs do not depend on later positions, and caching keys and values does not change them."""

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from softlook import masks
from tests.ops_cases import EAGER, Case, cases, close


@given(cases(lengths="cached"), st.data())
def test_changing_the_future_does_not_change_the_past(case: Case, data: st.DataObject) -> None:
    B, H, T, S = case.sizes
    mask = case.options.get("mask")
    case = case.replace(mask=masks.causal() if mask is None else masks.causal() & mask)
    now = data.draw(st.integers(S - T, S - 1), label="the last unchanged position")
    past = now - (S - T) + 1  # the number of queries at or before it
    later = torch.arange(S, device=case.key.device)[:, None] > now
    key = torch.where(later, case.rng.normal(*case.key.shape), case.key)
    value = torch.where(later, case.rng.normal(*case.value.shape), case.value)
    query = torch.where(later[S - T :], case.rng.normal(*case.query.shape), case.query)
    other = case.replace(query=query, key=key, value=value)
    close(other.attend()[:, :, :past], case.attend()[:, :, :past])
    close(other.weights()[:, :, :past], case.weights()[:, :, :past])


@given(cases(lengths="square", kinds="relative"), st.data())
def test_a_kv_cache_does_not_change_the_output(case: Case, data: st.DataObject) -> None:
    B, H, T, S = case.sizes
    mask = case.options.get("mask")
    case = case.replace(mask=masks.causal() if mask is None else masks.causal() & mask)
    new = data.draw(st.integers(1, S), label="new queries")
    cached = case.replace(query=case.query[:, :, S - new :])
    close(cached.attend(), case.attend()[:, :, S - new :])
    close(cached.weights(), case.weights()[:, :, S - new :])


@given(cases(lengths="square", kinds="relative"))
def test_queries_are_aligned_with_the_last_keys_without_a_mask(case: Case) -> None:
    new = int(case.rng.integers(1, case.sizes[3] + 1))
    cached = case.replace(query=case.query[:, :, -new:])
    close(cached.attend(), case.attend()[:, :, -new:])


@pytest.mark.parametrize("backend", EAGER)
@given(case=cases(kinds="every"))
def test_masked_keys_get_zero_gradients(case: Case, backend: str) -> None:
    assume(case.supports(backend))
    B, G, S, _ = case.key.shape
    masked_keys = ~case.visible().unflatten(1, (G, -1)).any(2).any(2)  # (B, G, S)
    tensors = [tensor.detach().requires_grad_() for tensor in (case.query, case.key, case.value)]
    output = case.replace(query=tensors[0], key=tensors[1], value=tensors[2]).attend(backend=backend)
    gradients = torch.autograd.grad(output, tensors, case.rng.normal(*output.shape))
    for gradient in gradients:
        assert gradient.isfinite().all()
    masked_rows = ~case.visible().any(-1)
    assert gradients[0][masked_rows].eq(0).all()
    assert gradients[1][masked_keys].eq(0).all()
    assert gradients[2][masked_keys].eq(0).all()
