"""Words that were hidden, found again from both sides; and with them whether two sentences belong together."""

from collections.abc import Callable
from typing import NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor, nn

from softlook.heads.language import language_head


class WordHead(nn.Module):
    """A score for each word at every place: dense, bend, norm, then the embedding's own matrix used backwards; or
    a matrix of its own where it is not `tied`. `dim` is the width of the vectors, where it is not the embedding's.

    >>> import torch
    >>> table = nn.Embedding(10, 8)
    >>> WordHead(table, torch.relu)(torch.randn(2, 5, 8)).shape
    torch.Size([2, 5, 10])
    """

    def __init__(
        self,
        table: nn.Embedding,
        act: Callable[[Tensor], Tensor],
        *,
        dim: int | None = None,
        eps: float = 1e-12,
        tied: bool = True,
    ) -> None:
        super().__init__()
        vocab, width = table.num_embeddings, table.embedding_dim
        self.to_hidden, self.act = nn.Linear(width if dim is None else dim, width), act
        self.norm = nn.LayerNorm(width, eps)
        self.to_words = language_head(width, vocab, tied_to=table if tied else None, bias=True)

    def forward(self, x: Float[Tensor, "B T C"], present: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "B T V"]:
        return self.to_words(self.norm(self.act(self.to_hidden(x))))


class Pretraining(NamedTuple):
    """What BERT was first trained to say of a pair of sentences."""

    words: Tensor
    """Scores of the word at every place. (B, T, V)"""
    next: Tensor
    """Scores of: the second sentence follows the first; it does not. (B, 2)"""


class PretrainingHead(nn.Module):
    """Both questions at once: which words are hidden, and does the second sentence follow the first?

    >>> import torch
    >>> from softlook.heads import ClassHead, FirstPool
    >>> head = PretrainingHead(WordHead(nn.Embedding(10, 8), torch.relu), ClassHead(FirstPool(), 8, 2))
    >>> scores = head(torch.randn(2, 5, 8))
    >>> scores.words.shape, scores.next.shape
    (torch.Size([2, 5, 10]), torch.Size([2, 2]))
    """

    def __init__(self, words: nn.Module, next: nn.Module) -> None:
        super().__init__()
        self.words, self.next = words, next

    def forward(self, x: Float[Tensor, "B T C"], present: Bool[Tensor, "B T"] | None = None) -> Pretraining:
        return Pretraining(self.words(x, present), self.next(x, present))
