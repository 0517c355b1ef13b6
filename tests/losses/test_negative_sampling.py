"""The negative sampling loss of word2vec."""

import torch
from torch.testing import assert_close

from softlook.losses import negative_sampling


def test_negative_sampling_is_the_sum_of_binary_cross_entropies() -> None:
    scores = torch.randn(5, 4)
    labels = torch.zeros(5, 4)
    labels[:, 0] = 1
    losses = torch.nn.functional.binary_cross_entropy_with_logits(scores, labels, reduction="none")
    assert_close(negative_sampling(scores), losses.sum(1).mean())


def test_the_loss_decreases_with_positive_scores_and_increases_with_negative_ones() -> None:
    scores = torch.zeros(2, 3, requires_grad=True)
    negative_sampling(scores).backward()
    assert scores.grad is not None
    assert (scores.grad[:, 0] < 0).all() and (scores.grad[:, 1:] > 0).all()


def test_the_loss_of_extreme_scores_is_finite() -> None:
    assert negative_sampling(torch.tensor([[-1e4, 1e4]])).isfinite()
