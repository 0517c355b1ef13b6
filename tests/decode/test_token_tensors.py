"""Token tensors equal loops over ids."""

from random import Random

import pytest
import torch

from softlook.decode.token_tensors import (
    count_tokens,
    flat_indices,
    ngram_continuations,
    pad_segments,
    penalize_tokens,
    replace_at,
)

VOCAB = 7


def random_rows(seed: int) -> list[list[int]]:
    """Rows of several lengths, including zero, with ids outside the vocabulary."""
    rng = Random(seed)
    return [[rng.randint(-2, VOCAB + 2) for _ in range(rng.choice([0, 1, 2, 9]))] for _ in range(4)]


@pytest.mark.parametrize("seed", range(20))
def test_penalties_equal_a_loop_over_ids(seed: int) -> None:
    rows, scores = random_rows(seed), torch.randn(4, VOCAB, generator=torch.Generator().manual_seed(seed))
    ids, expected, counts = pad_segments([(row[:1], row[1:]) for row in rows]), scores.clone(), torch.zeros_like(scores)
    for number, row in enumerate(rows):
        for id in row:
            if 0 <= id < VOCAB:
                score = scores[number, id]
                expected[number, id] = score * 1.5 if score < 0 else score / 1.5
                counts[number, id] += 1
    before = scores.clone()
    assert penalize_tokens(scores, ids, 1.5).equal(expected) and count_tokens(scores, ids).equal(counts)
    assert scores.equal(before)


@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize("seed", range(20))
def test_ngram_continuations_equal_a_loop_over_ids(seed: int, length: int) -> None:
    rng = Random(seed)
    rows = [[rng.randint(0, 2) for _ in range(rng.choice([0, 1, 2, 12]))] for _ in range(4)]
    texts = [[rng.randint(0, 2) for _ in range(rng.choice([0, 1, 8]))] for _ in range(4)]
    expected = torch.zeros(4, VOCAB)
    for number, (row, text) in enumerate(zip(rows, texts, strict=True)):
        if len(row) >= length - 1:
            last = row[len(row) - length + 1 :]
            for start in range(len(text) - length + 1):
                if text[start : start + length - 1] == last:
                    expected[number, text[start + length - 1]] = 1.0
    scores = torch.zeros(4, VOCAB)
    found = ngram_continuations(
        pad_segments([(text,) for text in texts]), pad_segments([(row,) for row in rows]), length
    )
    assert replace_at(scores, flat_indices(scores, *found), 1.0).equal(expected)
