"""CPU kernels: which one is preferred, and that all give the same result."""

import pytest
import torch

from softlook import attention, masks
from softlook.ops.backends import sdpa_cpu


def test_few_queries_prefer_math_attention_except_in_half_precision() -> None:
    few, many = (
        torch.randn(1, 2, sdpa_cpu.MATH_MAX_QUERIES, 8),
        torch.randn(1, 2, sdpa_cpu.MATH_MAX_LENGTH_WITH_GRAD + 1, 8),
    )
    assert sdpa_cpu.prefers_math(few, many, many)
    assert not sdpa_cpu.prefers_math(many, many, many)
    assert not sdpa_cpu.prefers_math(few.bfloat16(), many.bfloat16(), many.bfloat16())


def test_short_maps_with_a_gradient_prefer_math_attention() -> None:
    short = torch.randn(1, 2, sdpa_cpu.MATH_MAX_LENGTH_WITH_GRAD, 8, requires_grad=True)
    longer = torch.randn(1, 2, sdpa_cpu.MATH_MAX_LENGTH_WITH_GRAD + 1, 8, requires_grad=True)
    assert sdpa_cpu.prefers_math(short, short, short)
    assert not sdpa_cpu.prefers_math(short, longer, longer)
    with torch.no_grad():
        assert not sdpa_cpu.prefers_math(short, short, short)


@pytest.mark.parametrize("mask", [None, masks.causal(), masks.window(3, 2), masks.padding([0, 7])], ids=str)
def test_math_and_fused_attention_agree(mask: masks.Mask | None, monkeypatch: pytest.MonkeyPatch) -> None:
    query, key, value = torch.randn(2, 4, 9, 8), torch.randn(2, 2, 9, 8), torch.randn(2, 2, 9, 5)
    math = attention(query, key, value, mask=mask, backend="sdpa")
    monkeypatch.setattr(sdpa_cpu, "MATH_MAX_QUERIES", 0)
    torch.testing.assert_close(attention(query, key, value, mask=mask, backend="sdpa"), math)


def test_half_precision_trains_in_float32() -> None:
    assert sdpa_cpu.kernel_dtype(torch.bfloat16, single=True) == torch.float32
    assert sdpa_cpu.kernel_dtype(torch.bfloat16, single=False) == torch.bfloat16
    assert sdpa_cpu.kernel_dtype(torch.float64, single=True) == torch.float64


def test_the_transposed_softmax_of_short_rows_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    query, key, value = (torch.randn(64, 4, 9, 8, requires_grad=True) for _ in range(3))
    assert sdpa_cpu.TRANSPOSE_MIN_SCORES <= 64 * 4 * 9 * 9
    output = attention(query, key, value)
    gradients = torch.autograd.grad(output.square().sum(), (query, key, value))
    monkeypatch.setattr(sdpa_cpu, "VECTOR_WIDTH", 0)
    again = attention(query, key, value)
    torch.testing.assert_close(again, output)
    torch.testing.assert_close(torch.autograd.grad(again.square().sum(), (query, key, value)), gradients)
