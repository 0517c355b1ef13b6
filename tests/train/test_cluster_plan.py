"""Plans of training on many GPUs: the measured steps, and what must hold for every plan."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softlook.base.errors import ConfigError
from softlook.train.cluster_plan import ATTENTION_RATES, ModelShape, attention_rate, plan_cluster, shape_of

MEASURED = {12: (64.6e-3, 17.0 * 2**30), 3: (30.1e-3, None)}
"""Layers of width 768: seconds and bytes of a step of 32 x 1024 tokens on an H200 (docs/benchmarks)."""


@pytest.mark.parametrize("depth", MEASURED)
def test_measured_steps_are_planned_within_15_percent(depth: int) -> None:
    seconds, memory = MEASURED[depth]
    plan = plan_cluster(ModelShape(depth, 768), gpus=1, context=1024, batch_tokens=32 * 1024)
    assert plan.step == pytest.approx(seconds, rel=0.15)
    assert memory is None or plan.memory == pytest.approx(memory, rel=0.15)
    assert plan.communicated == 0 and plan.fits


@given(st.floats(2e7, 2e11), st.integers(1, 4096), st.sampled_from([512, 1024, 32768, 131072]))
def test_more_gpus_hold_less_each_and_are_faster_together(parameters: float, gpus: int, context: int) -> None:
    shape, batch = shape_of(parameters), 2 * gpus * context
    one, two = (plan_cluster(shape, gpus=count, context=context, batch_tokens=batch) for count in (gpus, 2 * gpus))
    assert one.tokens == two.tokens == batch
    assert two.compute < one.compute
    assert (two.state < one.state) or gpus == 1  # one GPU gathers nothing
    assert two.micro_batches <= max(one.micro_batches, 2)
    assert two.step == max(two.compute, two.communication)
    assert two.fits_recomputed or not two.fits
    assert two.fits or two.micro_batches == two.rows  # memory is what limits the micro-batches


@given(st.floats(5e7, 5e11))
def test_shapes_have_about_the_parameters_asked_for(parameters: float) -> None:
    shape = shape_of(parameters)
    assert 0.6 * parameters <= shape.parameters <= 1.05 * parameters
    assert shape.dim == 128 * shape.depth


@pytest.mark.parametrize("head_dim", ATTENTION_RATES)
def test_attention_rates_are_those_measured_and_between_them(head_dim: int) -> None:
    rates = ATTENTION_RATES[head_dim]
    for length, rate in rates.items():
        assert attention_rate(head_dim, length) == pytest.approx(rate)
    assert rates[1024] < attention_rate(head_dim, 2048) < rates[4096]
    assert attention_rate(head_dim, 64) == rates[1024]
    assert attention_rate(head_dim, 1 << 20) == rates[16384]


def test_no_gpu_is_an_error() -> None:
    with pytest.raises(ConfigError, match="above 0, got 0 GPUs"):
        plan_cluster(ModelShape(1, 128), gpus=0, context=1, batch_tokens=1)
