"""Automatic sizes and schedules."""

import pytest
import torch

from softlook.recipes.config.autosize import (
    SIZES,
    ComputeBudget,
    max_training_tokens,
    measure_budget,
    plan_schedule,
    select_dropout,
    select_learning_rate,
    select_model_size,
    select_vocab_size,
)

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def budget(
    minutes: float = 5.0, speed: float = 5e10, device: torch.device = CPU, is_explicit: bool = True
) -> ComputeBudget:
    return ComputeBudget(device, speed, minutes, is_explicit)


@pytest.mark.parametrize("tokens", [1e4, 1e6, 1e8])
def test_more_time_never_gives_a_smaller_model(tokens: float) -> None:
    sizes = [select_model_size(tokens, budget(minutes), vocab_size=1000) for minutes in (0.1, 1, 10, 100, 1000)]
    weights = [size.depth * size.dim**2 for size in sizes]
    assert weights == sorted(weights)


@pytest.mark.parametrize("minutes", [1, 1000])
def test_small_data_gets_a_small_model_for_any_time_limit(minutes: float) -> None:
    assert select_model_size(1000, budget(minutes)).dim == SIZES[0][0]


def test_a_gpu_gets_a_larger_model_than_a_cpu() -> None:
    small, large = select_model_size(1e7, budget()), select_model_size(1e7, budget(speed=5e13, device=CUDA))
    assert (small.dim, small.depth) < (large.dim, large.depth)


def test_heads_divide_every_dimension() -> None:
    assert all(dim % heads == 0 for dim, _, heads in SIZES)


def test_small_data_gets_many_epochs_and_large_data_three() -> None:
    assert max_training_tokens(1e4, CPU) == 4e5
    assert max_training_tokens(1e9, CPU) == 3e9
    assert [select_dropout(epochs, 0.3) for epochs in (1, 6, 20, 40)] == [0.0, 0.1, 0.2, 0.3]


def test_vocabulary_grows_with_the_text_up_to_a_limit() -> None:
    sizes = [select_vocab_size(characters, budget(60)) for characters in (10**4, 10**6, 10**7, 10**10)]
    assert sizes == sorted(sizes)
    assert (sizes[0], sizes[-1]) == (500, 32000)


def test_wide_models_get_a_lower_learning_rate() -> None:
    assert select_learning_rate(64) > select_learning_rate(256) > select_learning_rate(1024)


def test_the_schedule_fits_into_the_time_limit() -> None:
    auto = plan_schedule(0.5, 1e9, 1000, budget(minutes=2), {"training.max_minutes": 2.0}).values
    assert auto["training.max_minutes"] == 2.0
    assert not {"training.max_steps", "training.evaluate_every", "training.save_every"} & auto.keys()
    assert auto["optim.warmup"] == 0.1  # a share of the time


def test_a_limit_in_steps_does_not_depend_on_the_speed() -> None:
    slow, fast = (plan_schedule(s, 1e9, 1000, budget(), {"training.max_steps": 50}).values for s in (9.0, 0.01))
    names = ("training.max_steps", "training.ema_decay", "optim.warmup")
    assert "training.max_minutes" not in slow
    assert [slow[name] for name in names] == [fast[name] for name in names]


def test_epochs_are_a_number_of_steps() -> None:
    auto = plan_schedule(1.0, 1e9, 1000, budget(), {"epochs": 2.5}, epoch_tokens=20_000)
    assert auto.values["training.max_steps"] == 50


def test_the_schedule_stops_at_the_useful_number_of_tokens() -> None:
    assert plan_schedule(0.01, 1e6, 1000, budget(minutes=60), {}).values["training.max_steps"] == 1000


def test_a_cpu_run_has_a_default_time_limit_with_a_message() -> None:
    auto = plan_schedule(1.0, 1e9, 1000, budget(is_explicit=False), {})
    assert auto.values["training.max_minutes"] == 5.0
    assert "--max-minutes 60" in auto.messages[0]
    assert (
        "training.max_minutes" not in plan_schedule(1.0, 1e9, 1000, budget(is_explicit=False, device=CUDA), {}).values
    )


def test_explicit_max_steps_are_kept() -> None:
    assert plan_schedule(1.0, 1e9, 1000, budget(), {"training.max_steps": 7}).values["training.max_steps"] == 7


def test_device_speed_is_measured() -> None:
    assert 1e7 < measure_budget(CPU, 1.0).flops_per_second < 1e14
