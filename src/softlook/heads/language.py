"""From vectors to words."""

from jaxtyping import Float
from torch import Tensor, nn


class CappedHead(nn.Linear):
    """A score for each word, softly capped: cap * tanh(score / cap).

    >>> import torch
    >>> bool((CappedHead(4, 10, cap=0.5)(100 * torch.randn(3, 4)).abs() <= 0.5).all())
    True
    """

    def __init__(self, dim: int, vocab: int, *, cap: float, bias: bool = False) -> None:
        super().__init__(dim, vocab, bias=bias)
        self.cap = cap

    def forward(self, input: Float[Tensor, "*places C"]) -> Float[Tensor, "*places V"]:
        return self.cap * (super().forward(input) / self.cap).tanh()


def language_head(
    dim: int, vocab: int, *, tied_to: nn.Embedding | None = None, bias: bool = False, softcap: float | None = None
) -> nn.Linear:
    """A score for each word: a matrix of its own, or the embedding's, used backwards.

    >>> table = nn.Embedding(10, 4)
    >>> language_head(4, 10, tied_to=table).weight is table.weight
    True
    """
    head = nn.Linear(dim, vocab, bias=bias) if softcap is None else CappedHead(dim, vocab, cap=softcap, bias=bias)
    if tied_to is not None:
        head.weight = tied_to.weight
    return head
