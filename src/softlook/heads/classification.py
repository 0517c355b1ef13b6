"""Classification heads: sequences, tokens, spans, replaced tokens; the linear skip of table models."""

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from softlook.ops.dropout import Dropout

Problem = Literal["single_label", "multi_label", "regression"]
"""What the logits of a classifier stand for: exclusive classes, independent labels, or numbers."""
MULTI_LABEL_THRESHOLD = 0.5
"""Probability above which an independent label is predicted."""


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


def predicted_labels(ranked: Sequence[tuple[str, float]], problem: Problem | None = None) -> tuple[str, ...]:
    """The predicted labels, from all of them with their probabilities, most likely first.

    >>> predicted_labels([("red", 0.8), ("round", 0.6), ("flat", 0.1)], "multi_label")
    ('red', 'round')
    """
    if problem == "multi_label":
        return tuple(label for label, probability in ranked if probability > MULTI_LABEL_THRESHOLD)
    return (ranked[0][0],)


def normalize_logits(logits: Float[Tensor, "*B K"], problem: Problem | None = None) -> Float[Tensor, "*B K"]:
    """Logits that can be compared between models: log-probabilities of exclusive classes; the others have no offset.

    >>> normalize_logits(torch.tensor([3.0, 3.0])).exp(), normalize_logits(torch.tensor([3.0]), "regression")
    (tensor([0.5000, 0.5000]), tensor([3.]))
    """
    return logits if problem in ("multi_label", "regression") else logits.log_softmax(-1)


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


class LinearSkip(nn.Module):
    """A linear model of the columns, added to the logits of a deep model: of numbers, categories and column states.

    Helps with few labels, where a deep model loses what a single column says. Missing numbers count as 0. All weights
    start at 0.

    >>> skip = LinearSkip(2, (3, 4), tokens=4, dim=8, classes=5)
    >>> skip(torch.randn(6, 2), torch.ones(6, 2).long(), torch.randn(6, 1, 4, 8)).shape
    torch.Size([6, 1, 5])
    """

    offsets: Tensor

    def __init__(self, n_numeric: int, cardinalities: Sequence[int], *, tokens: int, dim: int, classes: int) -> None:
        super().__init__()
        self.numeric_weight = nn.Parameter(torch.zeros(n_numeric, classes))
        self.categorical_weight = nn.Parameter(torch.zeros(sum(cardinalities), classes))
        self.state_weight = nn.Parameter(torch.zeros(tokens, dim, classes))
        offsets = [sum(cardinalities[:column]) for column in range(len(cardinalities))]
        self.register_buffer("offsets", torch.tensor(offsets, dtype=torch.long), persistent=False)

    def forward(
        self,
        numbers: Float[Tensor, "N numbers"],
        categories: Int[Tensor, "N categories"],
        states: Float[Tensor, "N E J C"],
    ) -> Float[Tensor, "N E K"]:
        per_category = F.embedding(categories + self.offsets, self.categorical_weight)
        logits = numbers.nan_to_num() @ self.numeric_weight + per_category.sum(1)
        return logits[:, None] + torch.einsum("nejc,jck->nek", states, self.state_weight)
