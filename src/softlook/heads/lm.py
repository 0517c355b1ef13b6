"""Language modeling heads: causal, masked, next sentence."""

from collections.abc import Callable
from typing import Literal, NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.heads.classification import ClassificationHead
from softlook.heads.pooling import LastPool

DecoderHead = Literal["causal_lm", "hidden_states", "classification"]
"""Logits of the next token, the final hidden states, or logits of classes for the whole sequence."""


class SoftcappedLMHead(nn.Linear):
    """LM head with logit soft-capping, cap * tanh(logit / cap), as in Gemma 2.

    >>> import torch
    >>> bool((SoftcappedLMHead(4, 10, cap=0.5)(100 * torch.randn(3, 4)).abs() <= 0.5).all())
    True
    """

    def __init__(self, dim: int, vocab_size: int, *, cap: float, bias: bool = False) -> None:
        super().__init__(dim, vocab_size, bias=bias)
        self.cap = cap

    def forward(self, input: Float[Tensor, "*B C"]) -> Float[Tensor, "*B V"]:
        return self.cap * (super().forward(input) / self.cap).tanh()


def build_lm_head(
    dim: int, vocab_size: int, *, tie_to: nn.Embedding | None = None, bias: bool = False, softcap: float | None = None
) -> nn.Linear:
    """LM head: a linear layer to the vocabulary, with the weight of the token embedding if tied.

    >>> embedding = nn.Embedding(10, 4)
    >>> build_lm_head(4, 10, tie_to=embedding).weight is embedding.weight
    True
    """
    head = (
        nn.Linear(dim, vocab_size, bias=bias)
        if softcap is None
        else SoftcappedLMHead(dim, vocab_size, cap=softcap, bias=bias)
    )
    if tie_to is not None:
        head.weight = tie_to.weight
    return head


def build_decoder_head(
    head: str,
    dim: int,
    vocab_size: int,
    *,
    classes: int,
    tie_to: nn.Embedding | None = None,
    softcap: float | None = None,
) -> nn.Module:
    """The head of a decoder-only model. Classification reads the last token, which attends to all others.

    >>> build_decoder_head("classification", 4, 10, classes=3).to_classes.out_features
    3
    """
    if head == "causal_lm":
        return build_lm_head(dim, vocab_size, tie_to=tie_to, softcap=softcap)
    if head == "classification":
        return ClassificationHead(LastPool(), dim, classes, bias=False)
    if head != "hidden_states":
        raise ConfigError(f"expected head causal_lm, hidden_states or classification, got {head!r}")
    return nn.Identity()


class MaskedLMHead(nn.Module):
    """BERT's masked language modeling head: dense, activation, norm, then the tied token embedding.

    `dim` is the width of the hidden states; default: that of the embedding. Without `tie_embeddings` the output layer
    has its own weight.

    >>> import torch
    >>> MaskedLMHead(nn.Embedding(10, 8), torch.relu)(torch.randn(2, 5, 8)).shape
    torch.Size([2, 5, 10])
    """

    def __init__(
        self,
        embedding: nn.Embedding,
        activation: Callable[[Tensor], Tensor],
        *,
        dim: int | None = None,
        eps: float = 1e-12,
        tie_embeddings: bool = True,
    ) -> None:
        super().__init__()
        vocab_size, width = embedding.num_embeddings, embedding.embedding_dim
        self.dense, self.activation = nn.Linear(width if dim is None else dim, width), activation
        self.norm = nn.LayerNorm(width, eps)
        self.to_logits = build_lm_head(width, vocab_size, tie_to=embedding if tie_embeddings else None, bias=True)

    def forward(
        self, x: Float[Tensor, "B T C"], padding_mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T V"]:
        return self.to_logits(self.norm(self.activation(self.dense(x))))


class PretrainingLogits(NamedTuple):
    """Logits of BERT's two pretraining tasks."""

    masked_lm: Tensor
    """Logits of the token at every position, (B, T, V)."""
    next_sentence: Tensor
    """Logits of "is the next sentence" and "is not", (B, 2)."""


class PretrainingHead(nn.Module):
    """BERT's pretraining head: masked language modeling and next sentence prediction.

    >>> import torch
    >>> from softlook.heads import ClassificationHead, ClsPool
    >>> masked_lm = MaskedLMHead(nn.Embedding(10, 8), torch.relu)
    >>> head = PretrainingHead(masked_lm, ClassificationHead(ClsPool(), 8, 2))
    >>> logits = head(torch.randn(2, 5, 8))
    >>> logits.masked_lm.shape, logits.next_sentence.shape
    (torch.Size([2, 5, 10]), torch.Size([2, 2]))
    """

    def __init__(self, masked_lm: nn.Module, next_sentence: nn.Module) -> None:
        super().__init__()
        self.masked_lm, self.next_sentence = masked_lm, next_sentence

    def forward(self, x: Float[Tensor, "B T C"], padding_mask: Bool[Tensor, "B T"] | None = None) -> PretrainingLogits:
        return PretrainingLogits(self.masked_lm(x, padding_mask), self.next_sentence(x, padding_mask))
