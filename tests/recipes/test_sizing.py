"""Sizes are chosen by rules that have no surprises in them."""

import pytest
import torch

from softlook.recipes.sizing import LADDER, Room, dropout_of, most_read, rate_of, room_of, size_of, timed, vocab_of

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def room(minutes: float = 5.0, speed: float = 5e10, device: torch.device = CPU, is_told: bool = True) -> Room:
    return Room(device, speed, minutes, is_told)


@pytest.mark.parametrize("tokens", [1e4, 1e6, 1e8])
def test_more_time_never_gives_a_smaller_model(tokens: float) -> None:
    sizes = [size_of(tokens, room(minutes), vocab=1000) for minutes in (0.1, 1, 10, 100, 1000)]
    weights = [size.depth * size.dim**2 for size in sizes]
    assert weights == sorted(weights)


@pytest.mark.parametrize("minutes", [1, 1000])
def test_few_data_get_a_small_model_however_much_time_there_is(minutes: float) -> None:
    assert size_of(1000, room(minutes)).dim == LADDER[0][0]


def test_a_gpu_gets_a_larger_model_than_a_cpu() -> None:
    small, large = size_of(1e7, room()), size_of(1e7, room(speed=5e13, device=CUDA))
    assert (small.dim, small.depth) < (large.dim, large.depth)


def test_heads_share_every_width_of_the_ladder() -> None:
    assert all(dim % heads == 0 for dim, _, heads in LADDER)


def test_small_data_are_read_often_and_large_ones_three_times() -> None:
    assert most_read(1e4, CPU) == 4e5
    assert most_read(1e9, CPU) == 3e9
    assert [dropout_of(epochs, 0.3) for epochs in (1, 6, 20, 40)] == [0.0, 0.1, 0.2, 0.3]


def test_vocabularies_grow_with_the_text_up_to_an_end() -> None:
    sizes = [vocab_of(characters, room(60)) for characters in (10**4, 10**6, 10**7, 10**10)]
    assert sizes == sorted(sizes)
    assert (sizes[0], sizes[-1]) == (500, 32000)


def test_wide_models_take_smaller_steps() -> None:
    assert rate_of(64) > rate_of(256) > rate_of(1024)


def test_as_many_steps_are_made_as_fit_into_the_time() -> None:
    chosen = timed(0.5, 1e9, 1000, room(minutes=2), {}).values
    assert 0.5 * chosen["training.steps"] <= 120
    assert chosen["training.evaluate_every"] <= chosen["training.steps"]
    assert chosen["optim.warmup"] < chosen["training.steps"]


def test_no_more_steps_are_made_than_there_is_to_read() -> None:
    assert timed(0.01, 1e6, 1000, room(minutes=60), {}).values["training.steps"] == 1000


def test_on_a_cpu_a_limit_is_set_and_said_where_nobody_sets_one() -> None:
    chosen = timed(1.0, 1e9, 1000, room(is_told=False), {})
    assert chosen.values["training.minutes"] == 5.0
    assert "--training.minutes 60" in chosen.said[0]
    assert "training.minutes" not in timed(1.0, 1e9, 1000, room(is_told=False, device=CUDA), {}).values


def test_steps_that_were_told_stay() -> None:
    assert timed(1.0, 1e9, 1000, room(), {"training.steps": 7}).values["training.steps"] == 7


def test_the_device_is_measured() -> None:
    assert 1e7 < room_of(CPU, 1.0).speed < 1e14
