"""SoftDict: a differentiable dictionary, and an ordinary one at low temperature."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from softlook import ShapeError, SoftDict, scores
from tests.ops_cases import DEVICE

KEYS = st.lists(st.tuples(*[st.integers(-9, 9)] * 3), min_size=1, max_size=8, unique=True)


@given(KEYS)
def test_at_low_temperature_it_is_a_dict(points: list[tuple[int, int, int]]) -> None:
    hard = {point: float(n) for n, point in enumerate(points)}
    keys = torch.tensor(points, dtype=torch.float64, device=DEVICE)
    values = torch.arange(len(points), dtype=torch.float64, device=DEVICE)[:, None]
    cold = SoftDict(keys, values, temperature=1e-3)
    assert [round(cold[key].item(), 9) for key in keys] == list(hard.values())


def test_at_high_temperature_it_averages_all_values() -> None:
    keys, values = torch.randn(5, 3, device=DEVICE), torch.randn(5, 2, device=DEVICE)
    torch.testing.assert_close(SoftDict(keys, values, temperature=1e6)[keys[0]], values.mean(0), atol=1e-4, rtol=0)


def test_weights_times_values_is_the_output() -> None:
    keys, values, queries = (torch.randn(n, 3, device=DEVICE) for n in (5, 5, 4))
    soft = SoftDict(keys, values)
    assert len(soft) == 5
    torch.testing.assert_close(soft.weights(queries) @ values, soft[queries])
    torch.testing.assert_close(soft.weights(queries[0]), soft.weights(queries)[0])
    torch.testing.assert_close(soft[queries[0]], soft[queries][0])


def test_any_score_can_be_used() -> None:
    keys, values = torch.randn(5, 3, device=DEVICE), torch.randn(5, 2, device=DEVICE)
    actual = SoftDict(keys, values, score=scores.dot())[keys[1]]
    torch.testing.assert_close(actual, (keys @ keys[1]).softmax(0) @ values)


@pytest.mark.usefixtures("no_shape_checks")
def test_keys_without_values_raise_an_error() -> None:
    with pytest.raises(ShapeError, match=r"values \(S, E\), got \(2, 3\) and \(3, 1\)"):
        SoftDict(torch.zeros(2, 3), torch.zeros(3, 1))
    with pytest.raises(ShapeError, match=r"one query \(D,\) or several \(T, D\)"):
        SoftDict(torch.zeros(2, 3), torch.zeros(2, 1))[torch.zeros(1, 1, 3)]
