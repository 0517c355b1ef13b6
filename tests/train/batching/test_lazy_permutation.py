"""A permutation computed on the fly: every index once, in random order."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softlook.train.batching.packed_stream import LazyPermutation


def order(size: int, *keys: int) -> list[int]:
    permutation = LazyPermutation(size, *keys)
    return [permutation[index] for index in range(size)]


@given(st.integers(1, 700), st.integers(0, 2**40))
def test_every_index_occurs_once(size: int, key: int) -> None:
    assert sorted(order(size, key)) == list(range(size))


def test_each_key_gives_another_order() -> None:
    orders = {tuple(order(50, seed, epoch)) for seed in range(5) for epoch in range(5)}
    assert len(orders) == 25


def test_the_order_looks_random() -> None:
    shuffled = order(4096, 0)
    assert sum(number == index for index, number in enumerate(shuffled)) < 10
    assert sum(abs(a - b) == 1 for a, b in pairwise(shuffled)) < 20
    early = shuffled[:2048]
    assert 900 < sum(number < 2048 for number in early) < 1150


def test_a_trillion_items_take_no_memory() -> None:
    permutation = LazyPermutation(10**12, 1)
    assert len({permutation[index] for index in range(1000)}) == 1000
    assert all(0 <= permutation[10**12 - 1 - index] < 10**12 for index in range(100))
    with pytest.raises(IndexError):
        permutation[10**12]
