"""The order of examples is a pure function of seed and epoch, and every place in it can be entered."""

from itertools import islice
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from softlook.base.errors import TrainingError
from softlook.train.batches import (
    Listed,
    Passing,
    Place,
    Repeated,
    Rolled,
    Shuffled,
    as_batches,
    buckets,
    chance,
    doubt,
    seed_of,
)

lengths = st.lists(st.integers(1, 12), min_size=1, max_size=40)
seeds = st.integers(0, 2**32)


@given(lengths, st.integers(1, 40), seeds, st.integers(0, 5))
def test_every_example_is_in_one_batch_and_no_batch_is_too_large(
    sizes: list[int], most: int, seed: int, epoch: int
) -> None:
    made = list(buckets(sizes, most, seed=seed, epoch=epoch))
    assert sorted(number for batch in made for number in batch) == list(range(len(sizes)))
    for batch in made:
        assert len(batch) == 1 or len(batch) * max(sizes[number] for number in batch) <= most
    assert made == list(buckets(sizes, most, seed=seed, epoch=epoch))


def test_another_epoch_and_another_seed_give_another_order() -> None:
    sizes = [3] * 30
    orders = [list(buckets(sizes, 9, seed=seed, epoch=epoch)) for seed in (0, 1) for epoch in (0, 1)]
    assert all(one != other for i, one in enumerate(orders) for other in orders[:i])


def test_a_batch_holds_examples_of_like_length() -> None:
    sizes = [1 + number % 10 for number in range(200)]
    made = list(buckets(sizes, 40, seed=0, epoch=0))
    wasted = sum(len(b) * max(sizes[n] for n in b) - sum(sizes[n] for n in b) for b in made)
    assert wasted < 0.05 * sum(sizes)


def shuffled() -> Shuffled[int, list[int]]:
    return Shuffled(list(range(20)), lambda item: 1 + item % 5, list, most=9, seed=3)


def rolled() -> Rolled[list[int], list[float]]:
    return Rolled(
        shuffled(), lambda batch, dice: (torch.tensor(batch) + torch.rand((), generator=dice)).tolist(), seed=1
    )


@pytest.mark.parametrize("make", [shuffled, rolled, lambda: Listed("abcde"), lambda: Repeated(range(5))])
def test_entered_at_any_place_what_comes_is_what_would_have_come(make: Any) -> None:
    whole = list(islice(make().start(Place()), 25))
    place = Place()
    for number, (after, _) in enumerate(whole):
        assert list(islice(make().start(place), 25 - number)) == whole[number:]
        place = after


def test_an_epoch_edge_is_the_start_of_the_next() -> None:
    count = len(shuffled().epoch(0))
    places = [after for after, _ in islice(shuffled().start(Place()), count + 1)]
    assert places[-3:] == [Place(0, count - 1), Place(1, 0), Place(1, 1)]


def test_chance_depends_on_the_place_and_on_nothing_else() -> None:
    torch.manual_seed(1)
    one = list(islice(rolled().start(Place()), 9))
    torch.manual_seed(2)
    assert list(islice(rolled().start(Place()), 9)) == one
    made = [
        next(Rolled(Listed([3]), rolls, seed=seed).start(Place(epoch, 0)))[1] for seed in (0, 1) for epoch in (0, 1)
    ]
    assert len({tuple(batch) for batch in made}) == 4


def rolls(count: int, dice: torch.Generator) -> list[float]:
    return torch.rand(count, generator=dice).tolist()


def test_seeds_of_close_numbers_are_far_apart() -> None:
    made = {seed_of(seed, epoch, offset) for seed in range(8) for epoch in range(8) for offset in range(64)}
    assert len(made) == 8 * 8 * 64
    assert torch.rand(1, generator=chance(1, 2)) != torch.rand(1, generator=chance(12))


def test_no_examples_are_told() -> None:
    with pytest.raises(TrainingError, match=r"there is nothing to learn from: no examples came"):
        Shuffled([], len, list, most=3, seed=0)


def test_whether_going_on_is_exact_is_known() -> None:
    assert doubt(as_batches([1])) is doubt(shuffled()) is None
    assert "cannot be sent back" in (doubt(Passing(iter([1]))) or "")
    assert "exact only if" in (doubt(Repeated({1})) or "")
