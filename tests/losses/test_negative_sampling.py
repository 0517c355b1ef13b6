"""The loss of word2vec."""

import torch
from torch.testing import assert_close

from softlook.losses import negative_sampling


def test_it_is_the_surprise_of_independent_yes_and_no_answers() -> None:
    scores = torch.randn(5, 4)
    wanted = torch.zeros(5, 4)
    wanted[:, 0] = 1
    each = torch.nn.functional.binary_cross_entropy_with_logits(scores, wanted, reduction="none")
    assert_close(negative_sampling(scores), each.sum(1).mean())


def test_it_falls_when_the_true_one_scores_higher_and_rises_when_a_wrong_one_does() -> None:
    scores = torch.zeros(2, 3, requires_grad=True)
    negative_sampling(scores).backward()
    assert scores.grad is not None
    assert (scores.grad[:, 0] < 0).all() and (scores.grad[:, 1:] > 0).all()


def test_it_stays_finite_when_a_score_is_far_off() -> None:
    assert negative_sampling(torch.tensor([[-1e4, 1e4]])).isfinite()
