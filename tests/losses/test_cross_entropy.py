"""Cross-entropy with ignored labels and label smoothing."""

import torch
from torch.testing import assert_close

from softlook.losses import IGNORE_INDEX, cross_entropy

LOGITS = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.tensor([[1, IGNORE_INDEX, 4], [0, 2, IGNORE_INDEX]])


def test_cross_entropy_is_the_mean_over_labels_that_are_not_ignored() -> None:
    has_label = LABELS != IGNORE_INDEX
    losses = -LOGITS.log_softmax(-1)[has_label].gather(1, LABELS[has_label][:, None])
    assert_close(cross_entropy(LOGITS, LABELS), losses.mean())


def test_label_smoothing_distributes_probability_over_all_classes() -> None:
    has_label = LABELS != IGNORE_INDEX
    targets = torch.nn.functional.one_hot(LABELS[has_label], 5) * 0.9 + 0.1 / 5
    losses = -(targets * LOGITS.log_softmax(-1)[has_label]).sum(-1)
    assert_close(cross_entropy(LOGITS, LABELS, label_smoothing=0.1), losses.mean())


def test_the_loss_and_gradient_are_zero_if_all_labels_are_ignored() -> None:
    logits = LOGITS.clone().requires_grad_()
    loss = cross_entropy(logits, torch.full((2, 3), IGNORE_INDEX))
    loss.backward()
    assert loss.item() == 0 and logits.grad is not None and not logits.grad.any()
