"""The order of examples is a pure function of seed and epoch, and iteration can start at any position."""

from itertools import islice
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from softlook.base.errors import TrainingError
from softlook.train.batching.batches import (
    DataCursor,
    IterableBatches,
    IteratorBatches,
    LengthBucketedBatches,
    LengthBucketing,
    ListBatches,
    SeededTransform,
    as_batches,
    resume_warning,
)
from softlook.train.rng import derive_seed, make_generator

lengths = st.lists(st.integers(1, 12), min_size=1, max_size=40)
seeds = st.integers(0, 2**32)


@given(lengths, st.integers(1, 40), seeds, st.integers(0, 5))
def test_every_example_is_in_one_batch_within_max_tokens(
    sizes: list[int], max_tokens: int, seed: int, epoch: int
) -> None:
    batches = list(LengthBucketing(sizes, max_tokens).epoch(seed=seed, number=epoch))
    assert sorted(number for batch in batches for number in batch) == list(range(len(sizes)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(sizes[number] for number in batch) <= max_tokens
    assert batches == list(LengthBucketing(sizes, max_tokens).epoch(seed=seed, number=epoch))


def test_epoch_and_seed_change_the_order() -> None:
    sizes = [3] * 30
    orders = [list(LengthBucketing(sizes, 9).epoch(seed=seed, number=epoch)) for seed in (0, 1) for epoch in (0, 1)]
    assert all(one != other for i, one in enumerate(orders) for other in orders[:i])


def test_batches_hold_examples_of_similar_length() -> None:
    sizes = [1 + number % 10 for number in range(200)]
    batches = list(LengthBucketing(sizes, 40).epoch(seed=0, number=0))
    wasted = sum(len(b) * max(sizes[n] for n in b) - sum(sizes[n] for n in b) for b in batches)
    assert wasted < 0.05 * sum(sizes)


def shuffled() -> LengthBucketedBatches[int, list[int]]:
    return LengthBucketedBatches(list(range(20)), lambda item: 1 + item % 5, list, max_tokens=9, seed=3)


def transformed() -> SeededTransform[list[int], list[float]]:
    return SeededTransform(
        shuffled(),
        lambda batch, generator: (torch.tensor(batch) + torch.rand((), generator=generator)).tolist(),
        seed=1,
    )


@pytest.mark.parametrize(
    "make", [shuffled, transformed, lambda: ListBatches("abcde"), lambda: IterableBatches(range(5))]
)
def test_iteration_resumes_from_any_cursor(make: Any) -> None:
    expected = list(islice(make().iter_from(DataCursor()), 25))
    cursor = DataCursor()
    for number, (after, _) in enumerate(expected):
        assert list(islice(make().iter_from(cursor), 25 - number)) == expected[number:]
        cursor = after


def test_the_cursor_after_the_last_batch_starts_the_next_epoch() -> None:
    count = len(shuffled().epoch(0))
    cursors = [after for after, _ in islice(shuffled().iter_from(DataCursor()), count + 1)]
    assert cursors[-3:] == [DataCursor(0, count - 1), DataCursor(1, 0), DataCursor(1, 1)]


def test_seeded_transform_depends_only_on_seed_and_cursor() -> None:
    torch.manual_seed(1)
    one = list(islice(transformed().iter_from(DataCursor()), 9))
    torch.manual_seed(2)
    assert list(islice(transformed().iter_from(DataCursor()), 9)) == one
    batches = [
        next(SeededTransform(ListBatches([3]), uniforms, seed=seed).iter_from(DataCursor(epoch, 0)))[1]
        for seed in (0, 1)
        for epoch in (0, 1)
    ]
    assert len({tuple(batch) for batch in batches}) == 4


def uniforms(count: int, generator: torch.Generator) -> list[float]:
    return torch.rand(count, generator=generator).tolist()


def test_derived_seeds_of_similar_numbers_differ() -> None:
    seeds = {derive_seed(seed, epoch, offset) for seed in range(8) for epoch in range(8) for offset in range(64)}
    assert len(seeds) == 8 * 8 * 64
    assert torch.rand(1, generator=make_generator(1, 2)) != torch.rand(1, generator=make_generator(12))


def test_no_examples_raise_an_error() -> None:
    with pytest.raises(TrainingError, match=r"there is nothing to train on: got no examples"):
        LengthBucketedBatches([], len, list, max_tokens=3, seed=0)


def test_resume_warning_for_batches_that_cannot_seek() -> None:
    assert resume_warning(as_batches([1])) is resume_warning(shuffled()) is None
    assert "cannot seek" in (resume_warning(IteratorBatches(iter([1]))) or "")
    assert "exact only if" in (resume_warning(IterableBatches({1})) or "")
