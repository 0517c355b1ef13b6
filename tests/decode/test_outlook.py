"""The best few of very many words."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from softlook.decode import Said, forbid
from softlook.decode.outlook import Prospect, best_words


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.sampled_from([5, 2047, 4096, 5000, 8321]), st.integers(1, 9), st.integers(1, 40))
def test_the_best_words_are_those_of_a_full_search(seed: int, vocab: int, width: int, rows: int) -> None:
    scores = torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed))
    found, words = best_words(scores, width)
    wanted = scores.log_softmax(-1).topk(min(width, vocab))
    assert_close(found, wanted.values)
    assert words.equal(wanted.indices)


def test_with_rules_scores_are_theirs_and_what_the_model_thought_stays() -> None:
    scores = torch.tensor([[1.0, 2.0, 3.0]])
    best = Prospect(scores, [forbid([[2]])], [Said([0])]).best(2)
    assert best.words.tolist() == [[1, 0]]
    assert_close(best.own, scores.log_softmax(-1)[:, [1, 0]])
    assert_close(best.scores, best.own)


def test_any_word_can_be_asked_about() -> None:
    scores = torch.randn(2, 5)
    told = Prospect(scores).of(torch.tensor([[4, 0], [1, 1]]))
    assert_close(told.own, scores.log_softmax(-1).gather(1, told.words))
