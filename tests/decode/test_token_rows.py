"""Ids beside scores: what tensors find is what a loop over ids finds."""

from random import Random

import pytest
import torch

from softlook.decode.token_rows import counts, followers, padded, penalised, places_of, with_values

VOCAB = 7


def drawn_rows(seed: int) -> list[list[int]]:
    """Rows of many lengths, none among them, with ids that no score belongs to."""
    draw = Random(seed)
    return [[draw.randint(-2, VOCAB + 2) for _ in range(draw.choice([0, 1, 2, 9]))] for _ in range(4)]


@pytest.mark.parametrize("seed", range(20))
def test_penalties_change_what_a_loop_over_ids_changes(seed: int) -> None:
    rows, scores = drawn_rows(seed), torch.randn(4, VOCAB, generator=torch.Generator().manual_seed(seed))
    ids, wanted, times = padded([(row[:1], row[1:]) for row in rows]), scores.clone(), torch.zeros_like(scores)
    for number, row in enumerate(rows):
        for id in row:
            if 0 <= id < VOCAB:
                own = scores[number, id]
                wanted[number, id] = own * 1.5 if own < 0 else own / 1.5
                times[number, id] += 1
    before = scores.clone()
    assert penalised(scores, ids, 1.5).equal(wanted) and counts(scores, ids).equal(times)
    assert scores.equal(before)


@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize("seed", range(20))
def test_what_follows_the_last_ids_is_what_a_loop_over_ids_finds(seed: int, length: int) -> None:
    draw = Random(seed)
    rows = [[draw.randint(0, 2) for _ in range(draw.choice([0, 1, 2, 12]))] for _ in range(4)]
    texts = [[draw.randint(0, 2) for _ in range(draw.choice([0, 1, 8]))] for _ in range(4)]
    wanted = torch.zeros(4, VOCAB)
    for number, (row, text) in enumerate(zip(rows, texts, strict=True)):
        if len(row) >= length - 1:
            last = row[len(row) - length + 1 :]
            for at in range(len(text) - length + 1):
                if text[at : at + length - 1] == last:
                    wanted[number, text[at + length - 1]] = 1.0
    scores = torch.zeros(4, VOCAB)
    found = followers(padded([(text,) for text in texts]), padded([(row,) for row in rows]), length)
    assert with_values(scores, places_of(scores, *found), 1.0).equal(wanted)
