"""Skip-gram (word2vec): a word is known by the company it keeps. This is how words got vectors before attention."""

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor, nn

from softlook.embed.tokens import TokenEmbedding


@dataclass(frozen=True, kw_only=True)
class SkipGramConfig:
    """The sizes of a skip-gram model."""

    vocab: int
    """Number of words."""
    dim: int = 300
    """Width of a word's vector."""


class SkipGram(nn.Module):
    """A word and candidates in, a score for each candidate out: does it stand near the word?

    Each word has two vectors, one as a centre (`words`, the ones to keep) and one as a neighbour; the score is their
    dot product. `losses.negative_sampling` trains it on what `ops.word_vectors` draws.

    >>> import torch
    >>> model = SkipGram(SkipGramConfig(vocab=10, dim=4))
    >>> model(torch.tensor([3, 1]), torch.tensor([[4, 7, 0], [5, 2, 9]])).shape
    torch.Size([2, 3])
    """

    def __init__(self, config: SkipGramConfig) -> None:
        super().__init__()
        self.config = config
        self.words = TokenEmbedding(config.vocab, config.dim)
        self.neighbours = TokenEmbedding(config.vocab, config.dim)
        nn.init.uniform_(self.words.table.weight, -0.5 / config.dim, 0.5 / config.dim)
        nn.init.zeros_(self.neighbours.table.weight)

    def forward(self, centre: Int[Tensor, " B"], candidates: Int[Tensor, "B K"]) -> Float[Tensor, "B K"]:
        return (self.words(centre[:, None]) * self.neighbours(candidates)).sum(-1)
