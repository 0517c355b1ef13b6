"""A language model of causal dilated convolutions: the baseline that attention is measured against."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor, nn

from softlook.blocks.convolution import ConvolutionStack
from softlook.blocks.initial import start
from softlook.embed.tokens import TokenEmbedding
from softlook.heads.language import language_head
from softlook.ops.dropping import Dropout


@dataclass(frozen=True, kw_only=True)
class ConvolutionalLMConfig:
    """The sizes of a convolutional language model."""

    vocab: int
    """Number of token ids."""
    dim: int = 256
    """Width of the vectors between layers."""
    depth: int = 20
    """Number of layers."""
    kernel: int = 2
    """How many places each layer looks at."""
    cycle: int = 10
    """Dilations double from layer to layer, 1, 2, 4 ..., and start again after so many layers."""
    dropout: float = 0.1
    """Share dropped after the embedding and before each addition, while training."""
    eps: float = 1e-5
    """Added to the variance in layer norms."""
    tied: bool = True
    """Are words read and said with the same vectors?"""


class ConvolutionalLM(nn.Module):
    """Ids in, scores of the next id out. No score depends on more than the last `reach` ids.

    It needs no positions: a convolution knows how far away each place it looks at is.

    >>> import torch
    >>> model = ConvolutionalLM(ConvolutionalLMConfig(vocab=10, dim=16, depth=4, cycle=3))
    >>> model(torch.tensor([[3, 1, 4]])).shape, model.reach
    (torch.Size([1, 3, 10]), 9)
    """

    mode: ClassVar = "decoder-only"

    def __init__(self, config: ConvolutionalLMConfig) -> None:
        super().__init__()
        self.config = c = config
        dilations = [2 ** (layer % c.cycle) for layer in range(c.depth)]
        self.tokens = TokenEmbedding(c.vocab, c.dim)
        self.drop = Dropout(c.dropout)
        self.stack = ConvolutionStack(c.dim, c.kernel, dilations, dropout=c.dropout, eps=c.eps)
        self.norm = nn.LayerNorm(c.dim, c.eps)
        self.head = language_head(c.dim, c.vocab, tied_to=self.tokens.table if c.tied else None)
        start(self)

    @property
    def reach(self) -> int:
        """How many ids a score depends on: the receptive field."""
        return self.stack.reach

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        return self.head(self.norm(self.stack(self.drop(self.tokens(ids)))))
