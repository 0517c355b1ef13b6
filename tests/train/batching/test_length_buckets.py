"""Vectorized length bucketing equals a plain loop over lists."""

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from softlook.train.batching import batches as module
from softlook.train.batching.batches import LengthBucketing
from softlook.train.rng import make_generator


def reference_buckets(lengths: Sequence[int], max_tokens: int, *, seed: int, epoch: int) -> list[list[int]]:
    """Reference implementation."""
    generator = make_generator(seed, epoch)
    order = torch.randperm(len(lengths), generator=generator).tolist()
    batches: list[list[int]] = [[]]
    for number in sorted(order, key=lambda number: lengths[number]):
        if batches[-1] and (len(batches[-1]) + 1) * lengths[number] > max_tokens:
            batches.append([])
        batches[-1].append(number)
    return [batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()]


@given(
    st.lists(st.integers(0, 12) | st.integers(0, 100_000), min_size=1, max_size=40),
    st.integers(0, 50) | st.integers(0, 200_000),
    st.integers(0, 2**32),
    st.sampled_from([1, 5, 1 << 20]),
)
def test_buckets_match_a_reference_loop(lengths: list[int], max_tokens: int, seed: int, chunk: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK", chunk)
        for epoch in (0, 3):
            expected = reference_buckets(lengths, max_tokens, seed=seed, epoch=epoch)
            assert list(LengthBucketing(lengths, max_tokens).epoch(seed=seed, number=epoch)) == expected
            bucketing = LengthBucketing(torch.tensor(lengths), max_tokens)
            assert list(bucketing.epoch(seed=seed, number=epoch)) == expected


def test_an_order_takes_four_bytes_per_example() -> None:
    bucketed = LengthBucketing(torch.randint(2, 60, (300_000,), dtype=torch.int32), max_tokens=4096).epoch(
        seed=0, number=0
    )
    assert bucketed.order.untyped_storage().nbytes() == 4 * 300_000
    assert bucketed.boundaries.nbytes + bucketed.batch_order.nbytes < 300_000
