"""Windows, noise and neighbours."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from softlook import ShapeError
from softlook.ops.word_vectors import nearest, noise, window_pairs


@settings(max_examples=50)
@given(st.integers(1, 3), st.integers(1, 7), st.integers(0, 8), st.data())
def test_pairs_are_those_a_loop_finds(batch: int, length: int, window: int, data: st.DataObject) -> None:
    ids = torch.arange(batch * length).view(batch, length)
    present = torch.tensor([[data.draw(st.booleans()) for _ in range(length)] for _ in range(batch)])
    wanted = [
        (int(ids[b, i]), int(ids[b, j]))
        for b in range(batch)
        for i in range(length)
        for j in range(length)
        if 0 < abs(i - j) <= window and present[b, i] and present[b, j]
    ]
    centres, neighbours = window_pairs(ids, window, present=present)
    assert sorted(zip(centres.tolist(), neighbours.tolist(), strict=True)) == sorted(wanted)


def test_noise_is_a_distribution_that_helps_the_rare_and_never_draws_the_unseen() -> None:
    counts = torch.tensor([1000, 10, 0])
    drawn = noise(counts)
    assert_close(drawn.sum(), torch.tensor(1.0))
    assert drawn[2] == 0
    assert drawn[1] > 10 / 1010
    assert noise(counts, power=0.0)[2] == 0
    assert_close(noise(counts, power=1.0), counts / counts.sum())


def test_nearest_minds_direction_not_length_and_leaves_the_word_itself_out() -> None:
    vectors = torch.tensor([[1.0, 0.0], [9.0, 1.0], [0.9, 0.5], [-5.0, 0.0]])
    assert nearest(vectors, torch.tensor([0, 3]), 3).tolist() == [[1, 2, 3], [2, 1, 0]]


@pytest.mark.parametrize("count", [0, 4])
def test_more_neighbours_than_there_are_words_are_refused(count: int) -> None:
    with pytest.raises(ShapeError, match=f"each of 4 words has 3 others; {count} were asked for"):
        nearest(torch.randn(4, 2), torch.tensor([0]), count)
