"""Which way a CPU goes, and that both ways lead to the same place."""

import pytest
import torch

from softlook import attention, masks
from softlook.ops import cpu


def test_a_few_queries_go_in_three_steps_unless_they_would_round() -> None:
    few, many = torch.randn(1, 2, cpu.FEW, 8), torch.randn(1, 2, cpu.SHORT + 1, 8)
    assert cpu.in_three(few, many, many)
    assert not cpu.in_three(many, many, many)
    assert not cpu.in_three(few.bfloat16(), many.bfloat16(), many.bfloat16())


def test_with_a_gradient_short_maps_go_in_three_steps() -> None:
    short = torch.randn(1, 2, cpu.SHORT, 8, requires_grad=True)
    longer = torch.randn(1, 2, cpu.SHORT + 1, 8, requires_grad=True)
    assert cpu.in_three(short, short, short)
    assert not cpu.in_three(short, longer, longer)
    with torch.no_grad():
        assert not cpu.in_three(short, short, short)


@pytest.mark.parametrize("mask", [None, masks.causal(), masks.window(3, 2), masks.padding([0, 7])], ids=str)
def test_both_ways_give_the_same_answer(mask: masks.Mask | None, monkeypatch: pytest.MonkeyPatch) -> None:
    query, key, value = torch.randn(2, 4, 9, 8), torch.randn(2, 2, 9, 8), torch.randn(2, 2, 9, 5)
    in_three = attention(query, key, value, mask=mask, backend="sdpa")
    monkeypatch.setattr(cpu, "FEW", 0)
    torch.testing.assert_close(attention(query, key, value, mask=mask, backend="sdpa"), in_three)


def test_half_precision_learns_in_single() -> None:
    assert cpu.works_in(torch.bfloat16, single=True) == torch.float32
    assert cpu.works_in(torch.bfloat16, single=False) == torch.bfloat16
    assert cpu.works_in(torch.float64, single=True) == torch.float64


def test_short_rows_are_turned_over_for_their_softmax_and_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    query, key, value = (torch.randn(64, 4, 9, 8, requires_grad=True) for _ in range(3))
    assert cpu.MANY <= 64 * 4 * 9 * 9
    said = attention(query, key, value)
    slopes = torch.autograd.grad(said.square().sum(), (query, key, value))
    monkeypatch.setattr(cpu, "NARROW", 0)
    again = attention(query, key, value)
    torch.testing.assert_close(again, said)
    torch.testing.assert_close(torch.autograd.grad(again.square().sum(), (query, key, value)), slopes)
