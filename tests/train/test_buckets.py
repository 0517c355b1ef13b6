"""Batches worked out with arrays are those that a plain loop over lists makes, example by example."""

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from softlook.train import buckets as module
from softlook.train.buckets import Bucketing, buckets
from softlook.train.chance import chance


def plainly(lengths: Sequence[int], most: int, *, seed: int, epoch: int) -> list[list[int]]:
    """The same, written down so that nobody can doubt it."""
    dice = chance(seed, epoch)
    order = torch.randperm(len(lengths), generator=dice).tolist()
    made: list[list[int]] = [[]]
    for number in sorted(order, key=lambda number: lengths[number]):
        if made[-1] and (len(made[-1]) + 1) * lengths[number] > most:
            made.append([])
        made[-1].append(number)
    return [made[i] for i in torch.randperm(len(made), generator=dice).tolist()]


@given(
    st.lists(st.integers(0, 12) | st.integers(0, 100_000), min_size=1, max_size=40),
    st.integers(0, 50) | st.integers(0, 200_000),
    st.integers(0, 2**32),
    st.sampled_from([1, 5, 1 << 20]),
)
def test_the_order_is_that_of_a_plain_loop(lengths: list[int], most: int, seed: int, portion: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PORTION", portion)
        for epoch in (0, 3):
            wanted = plainly(lengths, most, seed=seed, epoch=epoch)
            assert list(buckets(lengths, most, seed=seed, epoch=epoch)) == wanted
            assert list(buckets(torch.tensor(lengths), most, seed=seed, epoch=epoch)) == wanted


def test_an_order_takes_four_bytes_for_each_example() -> None:
    made = Bucketing(torch.randint(2, 60, (300_000,), dtype=torch.int32), most=4096).epoch(seed=0, number=0)
    assert made.order.untyped_storage().nbytes() == 4 * 300_000
    assert made.edges.nbytes + made.turn.nbytes < 300_000
