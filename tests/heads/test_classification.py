"""Scores of classes, on top of any encoder."""

import pytest
import torch
from torch import Tensor, nn

from softlook.blocks import FeedForward, PostNormBlock, SelfAttention
from softlook.embed import ClassToken
from softlook.heads import ClassificationHead, ClsPool, HiddenStates, MeanPool, SpanHead, TokenClassificationHead


class Encoder(nn.Module):
    """Some encoder that knows no positions and no heads."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            PostNormBlock(SelfAttention(8, 2), FeedForward(8), lambda: nn.LayerNorm(8)) for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def test_any_encoder_classifies_by_mean_pooling_and_then_order_plays_no_part() -> None:
    model = nn.Sequential(Encoder(), ClassificationHead(MeanPool(), 8, classes=3))
    x = torch.randn(2, 5, 8)
    scores = model(x)
    assert scores.shape == (2, 3)
    torch.testing.assert_close(model(x[:, torch.randperm(5)]), scores)


def test_any_encoder_classifies_by_a_global_unit_which_has_looked_at_all_the_others() -> None:
    model = nn.Sequential(ClassToken(8), Encoder(), ClassificationHead(ClsPool(), 8, classes=3))
    x = torch.randn(2, 5, 8, requires_grad=True)
    scores = model(x)
    assert scores.shape == (2, 3)
    (seen,) = torch.autograd.grad(scores.square().sum(), x)
    assert (seen.abs().sum(-1) > 0).all(), "every token has a part in the answer"
    torch.testing.assert_close(model(x[:, torch.randperm(5)]), scores)


def test_a_tag_depends_on_its_own_vector_only() -> None:
    head, x = TokenClassificationHead(8, classes=3), torch.randn(2, 5, 8)
    changed = x.clone()
    changed[:, 2] += 1.0
    differs = (head(changed) != head(x)).any(-1)
    assert differs[:, 2].all()
    assert not differs[:, [0, 1, 3, 4]].any()


def test_a_span_has_a_score_for_beginning_and_one_for_ending_at_every_token() -> None:
    head, x = SpanHead(8), torch.randn(2, 5, 8)
    begins, ends = head(x).unbind(-1)
    torch.testing.assert_close(begins, x @ head.to_span.weight[0] + head.to_span.bias[0])
    torch.testing.assert_close(ends, x @ head.to_span.weight[1] + head.to_span.bias[1])


@pytest.mark.parametrize(
    "head", [ClassificationHead(MeanPool(), 8, 3, dropout=0.5), TokenClassificationHead(8, 3, dropout=0.5)]
)
def test_dropout_is_for_training_only(head: nn.Module) -> None:
    x = torch.randn(2, 5, 8)
    assert not torch.equal(head.train()(x), head(x))
    assert torch.equal(head.eval()(x), head(x))


def test_states_are_handed_on_untouched() -> None:
    x = torch.randn(2, 5, 8)
    assert HiddenStates()(x, torch.ones(2, 5, dtype=torch.bool)) is x
