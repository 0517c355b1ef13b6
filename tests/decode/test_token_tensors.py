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
    """Rows of many lengths, none among them, with ids that no score belongs to."""
    draw = Random(seed)
    return [[draw.randint(-2, VOCAB + 2) for _ in range(draw.choice([0, 1, 2, 9]))] for _ in range(4)]


@pytest.mark.parametrize("seed", range(20))
def test_penalties_equal_a_loop_over_ids(seed: int) -> None:
    rows, scores = random_rows(seed), torch.randn(4, VOCAB, generator=torch.Generator().manual_seed(seed))
    ids, expected, times = pad_segments([(row[:1], row[1:]) for row in rows]), scores.clone(), torch.zeros_like(scores)
    for number, row in enumerate(rows):
        for id in row:
            if 0 <= id < VOCAB:
                own = scores[number, id]
                expected[number, id] = own * 1.5 if own < 0 else own / 1.5
                times[number, id] += 1
    before = scores.clone()
    assert penalize_tokens(scores, ids, 1.5).equal(expected) and count_tokens(scores, ids).equal(times)
    assert scores.equal(before)


@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize("seed", range(20))
def test_ngram_continuations_equal_a_loop_over_ids(seed: int, length: int) -> None:
    draw = Random(seed)
    rows = [[draw.randint(0, 2) for _ in range(draw.choice([0, 1, 2, 12]))] for _ in range(4)]
    texts = [[draw.randint(0, 2) for _ in range(draw.choice([0, 1, 8]))] for _ in range(4)]
    expected = torch.zeros(4, VOCAB)
    for number, (row, text) in enumerate(zip(rows, texts, strict=True)):
        if len(row) >= length - 1:
            last = row[len(row) - length + 1 :]
            for at in range(len(text) - length + 1):
                if text[at : at + length - 1] == last:
                    expected[number, text[at + length - 1]] = 1.0
    scores = torch.zeros(4, VOCAB)
    found = ngram_continuations(
        pad_segments([(text,) for text in texts]), pad_segments([(row,) for row in rows]), length
    )
    assert replace_at(scores, flat_indices(scores, *found), 1.0).equal(expected)
