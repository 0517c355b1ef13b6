"""Convolutional language model."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor, nn

from softlook.blocks.convolution import ConvolutionStack
from softlook.blocks.init import init_normal
from softlook.embed.tokens import TokenEmbedding
from softlook.heads.lm import build_lm_head
from softlook.ops.dropout import Dropout


@dataclass(frozen=True, kw_only=True)
class ConvolutionalLMConfig:
    """Hyperparameters of a convolutional language model."""

    vocab_size: int
    """Vocabulary size."""
    dim: int = 256
    """Width of the hidden states."""
    depth: int = 20
    """Number of layers."""
    kernel_size: int = 2
    """Kernel size of each layer."""
    dilation_cycle: int = 10
    """Dilations double from layer to layer, 1, 2, 4, ..., and start again after so many layers."""
    dropout: float = 0.1
    """Dropout probability of embeddings and layer outputs."""
    eps: float = 1e-5
    """Epsilon of the layer norms."""
    tie_embeddings: bool = True
    """Whether the LM head shares the weight of the token embedding."""


class ConvolutionalLM(nn.Module):
    """Language model of causal dilated convolutions, a baseline without attention: ids in, logits out.

    No logit depends on more than the last `receptive_field` ids. It needs no positions.

    >>> import torch
    >>> model = ConvolutionalLM(ConvolutionalLMConfig(vocab_size=10, dim=16, depth=4, dilation_cycle=3))
    >>> model(torch.tensor([[3, 1, 4]])).shape, model.receptive_field
    (torch.Size([1, 3, 10]), 9)
    """

    mode: ClassVar = "decoder-only"

    def __init__(self, config: ConvolutionalLMConfig) -> None:
        super().__init__()
        self.config = c = config
        dilations = [2 ** (layer % c.dilation_cycle) for layer in range(c.depth)]
        self.token_embedding = TokenEmbedding(c.vocab_size, c.dim)
        self.dropout = Dropout(c.dropout)
        self.stack = ConvolutionStack(c.dim, c.kernel_size, dilations, dropout=c.dropout, eps=c.eps)
        self.final_norm = nn.LayerNorm(c.dim, c.eps)
        self.lm_head = build_lm_head(c.dim, c.vocab_size, tie_to=self.token_embedding if c.tie_embeddings else None)
        init_normal(self)

    @property
    def receptive_field(self) -> int:
        """Number of ids that a logit depends on."""
        return self.stack.receptive_field

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        return self.lm_head(self.final_norm(self.stack(self.dropout(self.token_embedding(ids)))))
