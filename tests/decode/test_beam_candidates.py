"""Top tokens of large vocabularies."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from softlook.decode import SequenceView, bad_words
from softlook.decode.beam.hypotheses import NextTokenScores, top_tokens


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.sampled_from([5, 2047, 4096, 5000, 8321]), st.integers(1, 9), st.integers(1, 40))
def test_top_tokens_equal_full_topk(seed: int, vocab: int, width: int, rows: int) -> None:
    logits = torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed))
    found, tokens = top_tokens(logits, width)
    expected = logits.log_softmax(-1).topk(min(width, vocab))
    assert_close(found, expected.values)
    assert tokens.equal(expected.indices)


def test_logits_processors_change_scores_but_not_logprobs() -> None:
    logits = torch.tensor([[1.0, 2.0, 3.0]])
    best = NextTokenScores(logits, [bad_words([[2]])], [SequenceView([0])]).top(2)
    assert best.tokens.tolist() == [[1, 0]]
    assert_close(best.logprobs, logits.log_softmax(-1)[:, [1, 0]])
    assert_close(best.scores, best.logprobs)


def test_gather_scores_of_given_tokens() -> None:
    logits = torch.randn(2, 5)
    gathered = NextTokenScores(logits).gather(torch.tensor([[4, 0], [1, 1]]))
    assert_close(gathered.logprobs, logits.log_softmax(-1).gather(1, gathered.tokens))
