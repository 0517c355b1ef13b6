"""Every schedule rises to its peak, never rises afterwards, is continuous and never negative."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softlook.train.config import ScheduleName
from softlook.train.optimizer import SCHEDULES

names = pytest.mark.parametrize("name", SCHEDULES)
warmups, lengths = st.integers(0, 60), st.integers(1, 300)


@names
@given(warmup=warmups, steps=lengths)
def test_schedules_rise_in_warmup_and_never_after(name: ScheduleName, warmup: int, steps: int) -> None:
    schedule = SCHEDULES[name](warmup, steps)
    rates = [schedule(step) for step in range(1, steps + 1)]
    end_of_warmup = min(max(warmup, 1), steps)
    if name != "wsd":
        assert rates[:end_of_warmup] == sorted(rates[:end_of_warmup])
        assert rates[end_of_warmup - 1 :] == sorted(rates[end_of_warmup - 1 :], reverse=True)
    peak = rates.index(max(rates))
    assert rates[: peak + 1] == sorted(rates[: peak + 1])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    assert all(0 <= rate <= 1 for rate in rates)


@names
@pytest.mark.parametrize("warmup", [1, 20, 100])
def test_schedules_peak_at_the_end_of_warmup(name: ScheduleName, warmup: int) -> None:
    schedule = SCHEDULES[name](warmup, 1000)
    assert schedule(warmup) == pytest.approx(1.0)
    assert schedule(warmup + 1) > 0.7
    assert schedule(1) == pytest.approx(1 / warmup)


@names
def test_schedules_are_continuous(name: ScheduleName) -> None:
    schedule = SCHEDULES[name](50, 1000)
    jumps = [abs(schedule(step + 1) - schedule(step)) for step in range(1, 1000)]
    assert max(jumps) <= 1 / 50 + 1e-12


def test_final_learning_rates() -> None:
    ends = {name: SCHEDULES[name](100, 400)(400) for name in SCHEDULES}
    assert ends == pytest.approx({"inverse_sqrt": 0.5, "cosine": 0.1, "constant": 1.0, "wsd": 0.0})


def test_inverse_sqrt_matches_the_paper() -> None:
    """dim^-0.5 * min(step^-0.5, step * warmup^-1.5), up to its peak."""
    schedule, warmup = SCHEDULES["inverse_sqrt"](4000, 100_000), 4000
    for step in (1, 777, 4000, 4001, 90_000):
        paper = min(step**-0.5, step * warmup**-1.5)
        assert schedule(step) == pytest.approx(paper * math.sqrt(warmup))
