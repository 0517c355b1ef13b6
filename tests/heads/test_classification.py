"""Classification heads on any encoder."""

import pytest
import torch
from torch import Tensor, nn

from softlook.blocks import FeedForward, PostNormBlock, SelfAttention
from softlook.embed import ClassToken
from softlook.heads import ClassificationHead, ClsPool, HiddenStates, MeanPool, SpanHead, TokenClassificationHead


class Encoder(nn.Module):
    """An encoder without positions and without a head."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            PostNormBlock(SelfAttention(8, 2), FeedForward(8), lambda: nn.LayerNorm(8)) for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def test_classification_by_mean_pooling_does_not_depend_on_the_order() -> None:
    model = nn.Sequential(Encoder(), ClassificationHead(MeanPool(), 8, classes=3))
    x = torch.randn(2, 5, 8)
    logits = model(x)
    assert logits.shape == (2, 3)
    torch.testing.assert_close(model(x[:, torch.randperm(5)]), logits)


def test_classification_by_class_token_depends_on_all_tokens() -> None:
    model = nn.Sequential(ClassToken(8), Encoder(), ClassificationHead(ClsPool(), 8, classes=3))
    x = torch.randn(2, 5, 8, requires_grad=True)
    logits = model(x)
    assert logits.shape == (2, 3)
    (grad,) = torch.autograd.grad(logits.square().sum(), x)
    assert (grad.abs().sum(-1) > 0).all()
    torch.testing.assert_close(model(x[:, torch.randperm(5)]), logits)


def test_token_classification_depends_only_on_the_state_of_the_token() -> None:
    head, x = TokenClassificationHead(8, classes=3), torch.randn(2, 5, 8)
    changed = x.clone()
    changed[:, 2] += 1.0
    differs = (head(changed) != head(x)).any(-1)
    assert differs[:, 2].all()
    assert not differs[:, [0, 1, 3, 4]].any()


def test_span_head_gives_start_and_end_logits_for_every_token() -> None:
    head, x = SpanHead(8), torch.randn(2, 5, 8)
    start_logits, end_logits = head(x).unbind(-1)
    torch.testing.assert_close(start_logits, x @ head.to_span.weight[0] + head.to_span.bias[0])
    torch.testing.assert_close(end_logits, x @ head.to_span.weight[1] + head.to_span.bias[1])


@pytest.mark.parametrize(
    "head", [ClassificationHead(MeanPool(), 8, 3, dropout=0.5), TokenClassificationHead(8, 3, dropout=0.5)]
)
def test_dropout_applies_in_training_only(head: nn.Module) -> None:
    x = torch.randn(2, 5, 8)
    assert not torch.equal(head.train()(x), head(x))
    assert torch.equal(head.eval()(x), head(x))


def test_hidden_states_are_returned_unchanged() -> None:
    x = torch.randn(2, 5, 8)
    assert HiddenStates()(x, torch.ones(2, 5, dtype=torch.bool)) is x
