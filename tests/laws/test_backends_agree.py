"""Every backend gives the output and the gradients of the reference, up to rounding."""

from typing import Any

import pytest
import torch
from hypothesis import assume, given
from torch import Tensor

from softlook import explain
from softlook.ops.backends import sdpa_cpu
from softlook.ops.bias import Bias
from tests.ops_cases import Case, cases, small_tiles

TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-4, torch.bfloat16: 6e-2}
"""Absolute, and relative to the largest value. In bfloat16 the weights are rounded to a relative error of 2^-8."""


def leaves(thing: Any) -> list[Tensor]:
    """The tensors to which gradients may flow, wherever they are stored."""
    if isinstance(thing, Tensor):
        return [thing] if thing.is_floating_point() else []
    held = thing.values() if isinstance(thing, dict) else vars(thing).values() if hasattr(thing, "__dict__") else ()
    return [leaf for part in held if isinstance(part, Tensor | Bias) for leaf in leaves(part)]


def output_and_gradients(case: Case, backend: str) -> list[Tensor]:
    """The output, and the gradients of the inputs and of all tensors in the options."""
    inputs = [case.query, case.key, case.value]
    for name in ("bias", "score", "sink"):
        inputs += leaves(case.options.get(name))
    for tensor in inputs:
        tensor.requires_grad_().grad = None
    output = case.attend(backend=backend)
    weight = torch.linspace(-1, 1, output.numel(), device=output.device, dtype=torch.float64).view(output.shape)
    gradients = torch.autograd.grad(output, inputs, weight.to(output.dtype), allow_unused=True)
    return [output.detach(), *(torch.zeros(()) if gradient is None else gradient for gradient in gradients)]


def assert_equal_outputs(case: Case, backend: str) -> None:
    tolerance = TOLERANCE[case.query.dtype]
    expected = output_and_gradients(case, "reference")
    actual = output_and_gradients(case, backend)
    for one, other in zip(actual, expected, strict=True):
        assert one.dtype == other.dtype
        largest = max(1.0, float(other.abs().max()) if other.numel() else 0.0)
        torch.testing.assert_close(one, other, rtol=0, atol=tolerance * largest)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_tiled_matches_the_reference(dtype: torch.dtype) -> None:
    @given(cases(dtype=dtype, kinds="every"))
    def law(case: Case) -> None:
        assert_equal_outputs(case, "tiled")

    law()


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_tiled_in_small_tiles_matches_the_reference(dtype: torch.dtype) -> None:
    @given(cases(dtype=dtype, kinds="every"))
    def law(case: Case) -> None:
        with small_tiles():
            assert_equal_outputs(case, "tiled")

    law()


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_sdpa_matches_the_reference(dtype: torch.dtype) -> None:
    @given(cases(dtype=dtype, without=("sink", "softcap")))
    def law(case: Case) -> None:
        assume(case.supports("sdpa"))
        assert_equal_outputs(case, "sdpa")

    law()


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_math_attention_matches_the_reference(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdpa_cpu, "MATH_MAX_QUERIES", 64)
    monkeypatch.setattr(sdpa_cpu, "MATH_MAX_LENGTH_WITH_GRAD", 64)

    @given(cases(dtype=dtype, without=("sink", "softcap")))
    def law(case: Case) -> None:
        assume(case.supports("sdpa"))
        assert_equal_outputs(case, "sdpa")

    law()


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_auto_matches_the_reference(dtype: torch.dtype) -> None:
    @given(cases(dtype=dtype, kinds="every"))
    def law(case: Case) -> None:
        backend = explain(case.query, case.key, case.value, **case.options).backend
        assume(backend != "flex")  # compiling takes too long here; test_flex.py covers it
        assert_equal_outputs(case, "auto")

    law()
