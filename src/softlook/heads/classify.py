"""Scores of classes: for a sequence, for each token, or for where an answer begins and ends.

Every head is called as `head(x, present)`, whether or not it asks which tokens are there.
"""

from collections.abc import Callable
from typing import Literal

from jaxtyping import Bool, Float
from torch import Tensor, nn

from softlook.ops.dropping import Dropout

Problem = Literal["single_label", "multi_label", "regression"]
"""What the logits of a classifier stand for: classes that exclude each other, classes that do not, or numbers."""


def class_scores(logits: Float[Tensor, "*B K"], problem: Problem | None = None) -> Float[Tensor, "*B K"]:
    """Logits as probabilities, by the conventions of Hugging Face's text-classification pipeline.

    A softmax for classes that exclude each other; a sigmoid for each of several labels, and for a single one; the
    logits themselves for regression.

    >>> import torch
    >>> class_scores(torch.tensor([0.0, 0.0])), class_scores(torch.tensor([0.0]))
    (tensor([0.5000, 0.5000]), tensor([0.5000]))
    >>> class_scores(torch.tensor([-3.0]), "regression")
    tensor([-3.])
    """
    if problem == "regression":
        return logits
    return logits.sigmoid() if problem == "multi_label" or logits.shape[-1] == 1 else logits.softmax(-1)


class ClassHead(nn.Module):
    """A score for each class, from one vector for the sequence. One class is a probability or a number.

    `pool` may be any of `heads.pooling`, so that the states of any encoder can be classified by their mean or by
    a global unit.

    >>> import torch
    >>> from softlook.heads import MeanPool
    >>> ClassHead(MeanPool(), 8, classes=3)(torch.randn(2, 5, 8)).shape
    torch.Size([2, 3])
    """

    def __init__(self, pool: nn.Module, dim: int, classes: int, *, dropout: float = 0.0, bias: bool = True) -> None:
        super().__init__()
        self.pool, self.drop, self.to_classes = pool, Dropout(dropout), nn.Linear(dim, classes, bias=bias)

    def forward(self, x: Float[Tensor, "B T C"], present: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "B K"]:
        return self.to_classes(self.drop(self.pool(x, present)))


class TagHead(nn.Module):
    """A score for each class, for every token by itself.

    >>> import torch
    >>> TagHead(8, classes=3)(torch.randn(2, 5, 8)).shape
    torch.Size([2, 5, 3])
    """

    def __init__(self, dim: int, classes: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.drop, self.to_classes = Dropout(dropout), nn.Linear(dim, classes)

    def forward(self, x: Float[Tensor, "B T C"], present: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "B T K"]:
        return self.to_classes(self.drop(x))


class SpanHead(nn.Module):
    """Two scores for every token: that the answer begins here, and that it ends here.

    >>> import torch
    >>> begins, ends = SpanHead(8)(torch.randn(2, 5, 8)).unbind(-1)
    >>> begins.shape, ends.shape
    (torch.Size([2, 5]), torch.Size([2, 5]))
    """

    def __init__(self, dim: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.drop, self.to_ends = Dropout(dropout), nn.Linear(dim, 2)

    def forward(self, x: Float[Tensor, "B T C"], present: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "B T 2"]:
        return self.to_ends(self.drop(x))


class ReplacedHead(nn.Module):
    """One score for every token: above 0 where it was replaced, as ELECTRA's discriminator is trained to say.

    >>> import torch
    >>> ReplacedHead(8, torch.relu)(torch.randn(2, 5, 8)).shape
    torch.Size([2, 5])
    """

    def __init__(self, dim: int, act: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.to_hidden, self.act, self.to_score = nn.Linear(dim, dim), act, nn.Linear(dim, 1)

    def forward(self, x: Float[Tensor, "B T C"], present: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "B T"]:
        return self.to_score(self.act(self.to_hidden(x)))[..., 0]


class States(nn.Module):
    """The vectors themselves, for whoever has a head of their own.

    >>> import torch
    >>> x = torch.randn(2, 5, 8)
    >>> States()(x) is x
    True
    """

    def forward(self, x: Float[Tensor, "B T C"], present: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "B T C"]:
        return x
