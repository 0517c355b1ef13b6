"""From vectors to words."""

from torch import nn


def language_head(dim: int, vocab: int, *, tied_to: nn.Embedding | None = None, bias: bool = False) -> nn.Linear:
    """A score for each word: a matrix of its own, or the embedding's, used backwards.

    >>> table = nn.Embedding(10, 4)
    >>> language_head(4, 10, tied_to=table).weight is table.weight
    True
    """
    head = nn.Linear(dim, vocab, bias=bias)
    if tied_to is not None:
        head.weight = tied_to.weight
    return head
