"""Skip-gram (word2vec)."""

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor, nn

from softlook.embed.tokens import TokenEmbedding


@dataclass(frozen=True, kw_only=True)
class SkipGramConfig:
    """Hyperparameters of a skip-gram model."""

    vocab_size: int
    """Vocabulary size."""
    dim: int = 300
    """Width of a word vector."""


class SkipGram(nn.Module):
    """Skip-gram with negative sampling (Mikolov et al. 2013): a center word and candidates in, a logit for each out.

    Each word has an input vector (the one to keep) and an output vector; the logit is their dot product.
    `losses.negative_sampling` trains it on pairs of `ops.word2vec`.

    >>> import torch
    >>> model = SkipGram(SkipGramConfig(vocab_size=10, dim=4))
    >>> model(torch.tensor([3, 1]), torch.tensor([[4, 7, 0], [5, 2, 9]])).shape
    torch.Size([2, 3])
    """

    def __init__(self, config: SkipGramConfig) -> None:
        super().__init__()
        self.config = config
        self.input_vectors = TokenEmbedding(config.vocab_size, config.dim)
        self.output_vectors = TokenEmbedding(config.vocab_size, config.dim)
        nn.init.uniform_(self.input_vectors.weight, -0.5 / config.dim, 0.5 / config.dim)
        nn.init.zeros_(self.output_vectors.weight)

    def forward(self, center: Int[Tensor, " B"], candidates: Int[Tensor, "B K"]) -> Float[Tensor, "B K"]:
        return (self.input_vectors(center[:, None]) * self.output_vectors(candidates)).sum(-1)
