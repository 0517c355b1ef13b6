"""NaN propagates to the outputs that depend on it and to no others; dropout does not change a look."""

from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings

from softlook import attention, attention_and_look, look
from softlook.ops.backends import sdpa_cpu
from tests.ops_cases import DEVICE, EAGER, Case, TensorRNG, cases, close


def visible_from(case: Case, key: int) -> torch.Tensor:
    """(B, H, T): whether the key is visible to each query."""
    return case.visible()[..., key]


@pytest.mark.parametrize("backend", EAGER)
@given(case=cases(without=("sink",)))
def test_a_nan_in_a_query_affects_its_row_only(case: Case, backend: str) -> None:
    case = case.materialize()  # so that a content-dependent bias does not become NaN itself
    assume(case.supports(backend))
    B, H, T, _ = case.sizes
    row = tuple(int(case.rng.integers(0, size)) for size in (B, H, T))
    query = case.query.clone()
    query[row] = torch.nan
    before, after = case.attend(backend=backend), case.replace(query=query).attend(backend=backend)
    sees = bool(case.visible()[row].any())
    assert after[row].isnan().all() if sees else after[row].eq(0).all()
    others = torch.ones(B, H, T, dtype=torch.bool, device=DEVICE)
    others[row] = False
    close(after[others], before[others])


@pytest.mark.parametrize("backend", EAGER)
@given(case=cases())
def test_a_nan_in_a_visible_key_gives_nan(case: Case, backend: str) -> None:
    case = case.materialize()  # so that a content-dependent bias does not become NaN itself
    assume(case.supports(backend))
    G, S = case.key.shape[1:3]
    b, g, j = (int(case.rng.integers(0, size)) for size in (case.sizes[0], G, S))
    key = case.key.clone()
    key[b, g, j] = torch.nan
    output = case.replace(key=key).attend(backend=backend)
    sees = visible_from(case, j)[b].unflatten(0, (G, -1))[g]
    masked_rows = ~case.visible().any(-1)
    assert output[b].unflatten(0, (G, -1))[g][sees].isnan().all()
    assert output[masked_rows].eq(0).all()


NONFINITE = {
    "nan": [torch.nan],
    "inf": [torch.inf],
    "overflow": [1e38],
    "mixed": [torch.inf, 1e38, -1e38],
}


@pytest.mark.parametrize(
    ("backend", "math_max_queries"), [("reference", 0), ("tiled", 0), ("sdpa", 0), ("sdpa", 64)], ids=str
)
@pytest.mark.parametrize("numbers", NONFINITE)
@settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(case=cases(dtype=torch.float32, without=("score", "softcap", "bias")))
def test_overflow_in_a_masked_key_gives_the_exact_output_or_nan(
    case: Case, backend: str, numbers: str, math_max_queries: int
) -> None:
    assume(case.supports(backend) and case.options.get("mask") is not None)
    hidden = ~case.visible().any(2).unflatten(1, (case.key.shape[1], -1)).any(2)  # (B, G, S): masked for every query
    assume(bool(hidden.any()))
    broken = torch.tensor(NONFINITE[numbers], device=DEVICE).repeat(case.key.shape[3])[: case.key.shape[3]]
    key = torch.where(hidden[..., None], broken, case.key)
    expected = case.attend(backend="reference")
    with mock.patch.object(sdpa_cpu, "MATH_MAX_QUERIES", math_max_queries):
        output = case.replace(key=key).attend(backend=backend)
    exact = output.isclose(expected, rtol=1e-4, atol=1e-4).all(-1)
    assert (exact | output.isnan().any(-1)).all()
    if backend == "reference":
        assert exact.all()
    assert output[~case.visible().any(-1)].eq(0).all(), "a fully masked row is not zero"


@pytest.mark.parametrize("backend", EAGER)
@given(case=cases())
def test_a_nan_in_a_visible_value_gives_nan(case: Case, backend: str) -> None:
    assume(case.supports(backend))
    G, S, E = case.value.shape[1:]
    b, g, j, e = (int(case.rng.integers(0, size)) for size in (case.sizes[0], G, S, E))
    value = case.value.clone()
    value[b, g, j, e] = torch.nan
    output = case.replace(value=value).attend(backend=backend)
    sees = visible_from(case, j)[b].unflatten(0, (G, -1))[g]
    assert output[b].unflatten(0, (G, -1))[g][sees][:, e].isnan().all()


@given(cases(dtype=torch.float32))
def test_dropout_does_not_change_the_look(case: Case) -> None:
    _, seen = attention_and_look(case.query, case.key, case.value, **case.options, dropout=0.5)
    plain = look(case.query, case.key, **case.options)
    for name in plain.values:
        close(getattr(seen, name), getattr(plain, name), 1e-6)


@given(cases(dtype=torch.float32))
def test_dropout_sets_a_weight_to_zero_or_scales_it(case: Case) -> None:
    B, G, S, _ = case.key.shape
    one_hot = torch.eye(S, device=DEVICE).expand(B, G, S, S)
    output = case.replace(value=one_hot).attend(dropout=0.25)
    kept, weights = output != 0, case.weights()
    close(output[kept], weights[kept] / 0.75, 1e-4)


@pytest.mark.parametrize("backend", EAGER)
def test_dropout_keeps_the_mean(backend: Any) -> None:
    trials, rng = 4000, TensorRNG(torch.Generator().manual_seed(1), torch.float32)
    query, key, value = rng.normal(1, 2, 3, 4), rng.normal(1, 2, 5, 4), rng.normal(1, 2, 5, 4)
    many = (tensor.expand(trials, -1, -1, -1) for tensor in (query, key, value))
    outputs = attention(*many, dropout=0.3, backend=backend)
    standard_error = outputs.std(0) / trials**0.5
    error = (outputs.mean(0) - attention(query, key, value)[0]).abs()
    assert outputs.std(0).gt(0).all(), "nothing was dropped"
    assert error.lt(5 * standard_error).all()
