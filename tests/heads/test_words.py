"""Hidden words."""

import torch
from torch import nn
from torch.nn import functional as F

from softlook.heads import ClassHead, FirstPool, PretrainingHead, WordHead


def test_words_are_said_with_the_vectors_they_are_read_with() -> None:
    table = nn.Embedding(10, 8)
    head, x = WordHead(table, F.gelu), torch.randn(2, 5, 8)
    hidden = F.layer_norm(F.gelu(head.to_hidden(x)), (8,), head.norm.weight, head.norm.bias, 1e-12)
    torch.testing.assert_close(head(x), hidden @ table.weight.T + head.to_words.bias)
    head(x).sum().backward()
    assert table.weight.grad is not None
    assert table.weight.grad.abs().sum() > 0


def test_pretraining_asks_both_questions_of_the_same_vectors() -> None:
    words, follows = WordHead(nn.Embedding(10, 8), F.gelu), ClassHead(FirstPool(), 8, 2)
    x = torch.randn(2, 5, 8)
    scores = PretrainingHead(words, follows)(x)
    torch.testing.assert_close(scores.words, words(x))
    torch.testing.assert_close(scores.next, follows(x))
