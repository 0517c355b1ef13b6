"""Classification heads: sequences, tokens, spans, replaced tokens."""

from collections.abc import Callable
from typing import Literal

from jaxtyping import Bool, Float
from torch import Tensor, nn

from softlook.ops.dropout import Dropout

Problem = Literal["single_label", "multi_label", "regression"]
"""What the logits of a classifier stand for: exclusive classes, independent labels, or numbers."""


def class_probabilities(logits: Float[Tensor, "*B K"], problem: Problem | None = None) -> Float[Tensor, "*B K"]:
    """Probabilities of the classes, by the conventions of Hugging Face's text-classification pipeline.

    A softmax for exclusive classes; a sigmoid for independent labels, and for a single one; the logits themselves for
    regression.

    >>> import torch
    >>> class_probabilities(torch.tensor([0.0, 0.0])), class_probabilities(torch.tensor([0.0]))
    (tensor([0.5000, 0.5000]), tensor([0.5000]))
    >>> class_probabilities(torch.tensor([-3.0]), "regression")
    tensor([-3.])
    """
    if problem == "regression":
        return logits
    return logits.sigmoid() if problem == "multi_label" or logits.shape[-1] == 1 else logits.softmax(-1)


class ClassificationHead(nn.Module):
    """Sequence classification head: logits of the classes from one pooled vector.

    `pool` is any of `heads.pooling`. Every head is called as `head(x, padding_mask)`.

    >>> import torch
    >>> from softlook.heads import MeanPool
    >>> ClassificationHead(MeanPool(), 8, classes=3)(torch.randn(2, 5, 8)).shape
    torch.Size([2, 3])
    """

    def __init__(self, pool: nn.Module, dim: int, classes: int, *, dropout: float = 0.0, bias: bool = True) -> None:
        super().__init__()
        self.pool, self.dropout, self.to_classes = pool, Dropout(dropout), nn.Linear(dim, classes, bias=bias)

    def forward(
        self, x: Float[Tensor, "B T C"], padding_mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B K"]:
        return self.to_classes(self.dropout(self.pool(x, padding_mask)))


class TokenClassificationHead(nn.Module):
    """Token classification head: logits of the classes for every token.

    >>> import torch
    >>> TokenClassificationHead(8, classes=3)(torch.randn(2, 5, 8)).shape
    torch.Size([2, 5, 3])
    """

    def __init__(self, dim: int, classes: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout, self.to_classes = Dropout(dropout), nn.Linear(dim, classes)

    def forward(
        self, x: Float[Tensor, "B T C"], padding_mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T K"]:
        return self.to_classes(self.dropout(x))


class SpanHead(nn.Module):
    """Extractive question answering head: start and end logits for every token.

    >>> import torch
    >>> start_logits, end_logits = SpanHead(8)(torch.randn(2, 5, 8)).unbind(-1)
    >>> start_logits.shape, end_logits.shape
    (torch.Size([2, 5]), torch.Size([2, 5]))
    """

    def __init__(self, dim: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout, self.to_span = Dropout(dropout), nn.Linear(dim, 2)

    def forward(
        self, x: Float[Tensor, "B T C"], padding_mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T 2"]:
        return self.to_span(self.dropout(x))


class ReplacedTokenHead(nn.Module):
    """Replaced token detection head (ELECTRA's discriminator): a positive logit means that the token was replaced.

    >>> import torch
    >>> ReplacedTokenHead(8, torch.relu)(torch.randn(2, 5, 8)).shape
    torch.Size([2, 5])
    """

    def __init__(self, dim: int, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.dense, self.activation, self.to_logit = nn.Linear(dim, dim), activation, nn.Linear(dim, 1)

    def forward(
        self, x: Float[Tensor, "B T C"], padding_mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T"]:
        return self.to_logit(self.activation(self.dense(x)))[..., 0]


class HiddenStates(nn.Module):
    """No head: the hidden states of the last layer.

    >>> import torch
    >>> x = torch.randn(2, 5, 8)
    >>> HiddenStates()(x) is x
    True
    """

    def forward(
        self, x: Float[Tensor, "B T C"], padding_mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T C"]:
        return x
