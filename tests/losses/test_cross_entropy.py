"""How surprised a model is."""

import torch
from torch.testing import assert_close

from softlook.losses import IGNORE_INDEX, cross_entropy

SCORES = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
TARGET = torch.tensor([[1, IGNORE_INDEX, 4], [0, 2, IGNORE_INDEX]])


def test_it_is_the_mean_surprise_where_something_is_asked() -> None:
    asked = TARGET != IGNORE_INDEX
    surprise = -SCORES.log_softmax(-1)[asked].gather(1, TARGET[asked][:, None])
    assert_close(cross_entropy(SCORES, TARGET), surprise.mean())


def test_smoothing_spreads_a_share_of_the_target_over_all_classes() -> None:
    asked = TARGET != IGNORE_INDEX
    wanted = torch.nn.functional.one_hot(TARGET[asked], 5) * 0.9 + 0.1 / 5
    surprise = -(wanted * SCORES.log_softmax(-1)[asked]).sum(-1)
    assert_close(cross_entropy(SCORES, TARGET, label_smoothing=0.1), surprise.mean())


def test_where_nothing_is_asked_there_is_no_surprise_and_no_nan() -> None:
    scores = SCORES.clone().requires_grad_()
    loss = cross_entropy(scores, torch.full((2, 3), IGNORE_INDEX))
    loss.backward()
    assert loss.item() == 0 and scores.grad is not None and not scores.grad.any()
