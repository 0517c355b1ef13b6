"""Skip-gram pairs, the distribution of negative samples, and nearest neighbours."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from softlook import ShapeError
from softlook.ops.word2vec import most_similar, negative_distribution, skipgram_pairs


@settings(max_examples=50)
@given(st.integers(1, 3), st.integers(1, 7), st.integers(0, 8), st.data())
def test_skipgram_pairs_match_a_loop(batch: int, length: int, window: int, data: st.DataObject) -> None:
    ids = torch.arange(batch * length).view(batch, length)
    padding_mask = torch.tensor([[data.draw(st.booleans()) for _ in range(length)] for _ in range(batch)])
    expected = [
        (int(ids[b, i]), int(ids[b, j]))
        for b in range(batch)
        for i in range(length)
        for j in range(length)
        if 0 < abs(i - j) <= window and padding_mask[b, i] and padding_mask[b, j]
    ]
    centres, neighbours = skipgram_pairs(ids, window, padding_mask=padding_mask)
    assert sorted(zip(centres.tolist(), neighbours.tolist(), strict=True)) == sorted(expected)


def test_negative_distribution_flattens_counts_and_excludes_unseen_words() -> None:
    counts = torch.tensor([1000, 10, 0])
    probabilities = negative_distribution(counts)
    assert_close(probabilities.sum(), torch.tensor(1.0))
    assert probabilities[2] == 0
    assert probabilities[1] > 10 / 1010
    assert negative_distribution(counts, power=0.0)[2] == 0
    assert_close(negative_distribution(counts, power=1.0), counts / counts.sum())


def test_most_similar_uses_the_cosine_and_excludes_the_word_itself() -> None:
    vectors = torch.tensor([[1.0, 0.0], [9.0, 1.0], [0.9, 0.5], [-5.0, 0.0]])
    assert most_similar(vectors, torch.tensor([0, 3]), 3).tolist() == [[1, 2, 3], [2, 1, 0]]


@pytest.mark.parametrize("count", [0, 4])
def test_a_count_out_of_range_raises_an_error(count: int) -> None:
    with pytest.raises(ShapeError, match=f"1 to 3 for 4 words, got {count}"):
        most_similar(torch.randn(4, 2), torch.tensor([0]), count)
