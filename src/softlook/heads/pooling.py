"""Pooling of hidden states into one vector per sequence."""

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from softlook.base.errors import ConfigError
from softlook.heads.classification import HiddenStates


class MeanPool(nn.Module):
    """Mean pooling over the tokens that are not padding.

    >>> import torch
    >>> x = torch.tensor([[[1.0, 2.0], [3.0, 4.0], [9.0, 9.0]]])
    >>> MeanPool()(x, torch.tensor([[True, True, False]]))
    tensor([[2., 3.]])
    """

    def forward(
        self, x: Float[Tensor, "B T C"], padding_mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B C"]:
        if padding_mask is None:
            return x.mean(1)
        # Filled, not multiplied: states of padding may be NaN.
        tokens = x.masked_fill(~padding_mask[..., None], 0.0)
        return tokens.sum(1) / padding_mask.sum(1, keepdim=True).clamp(min=1)


class ClsPool(nn.Module):
    """The first token that is not padding: the [CLS] token.

    >>> import torch
    >>> x = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])
    >>> ClsPool()(x), ClsPool()(x, torch.tensor([[False, True]]))
    (tensor([[1., 2.]]), tensor([[3., 4.]]))
    """

    def forward(
        self, x: Float[Tensor, "B T C"], padding_mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B C"]:
        if padding_mask is None:
            return x[:, 0]
        first = padding_mask.int().argmax(1)  # argmax returns the first of equal elements
        return x.gather(1, first[:, None, None].expand(-1, 1, x.shape[-1]))[:, 0]


class LastPool(nn.Module):
    """The last token that is not padding: in a causal decoder, the one that attends to all others.

    >>> import torch
    >>> x = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])
    >>> LastPool()(x), LastPool()(x, torch.tensor([[True, False]]))
    (tensor([[3., 4.]]), tensor([[1., 2.]]))
    """

    def forward(
        self, x: Float[Tensor, "B T C"], padding_mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B C"]:
        if padding_mask is None:
            return x[:, -1]
        positions = torch.arange(padding_mask.shape[1], device=padding_mask.device)
        last = (positions * padding_mask).argmax(1)  # the first token if all are padding
        return x.gather(1, last[:, None, None].expand(-1, 1, x.shape[-1]))[:, 0]


class Pooler(nn.Module):
    """BERT's pooler: a pooled vector through a dense layer and an activation.

    >>> import torch
    >>> Pooler(ClsPool(), 4, torch.tanh)(torch.randn(2, 3, 4)).shape
    torch.Size([2, 4])
    """

    def __init__(self, pool: nn.Module, dim: int, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.pool, self.dense, self.activation = pool, nn.Linear(dim, dim), activation

    def forward(
        self, x: Float[Tensor, "B T C"], padding_mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B C"]:
        return self.activation(self.dense(self.pool(x, padding_mask)))


class L2Normalize(nn.Module):
    """A pooled vector of unit length: the dot product of two of them is their cosine similarity.

    >>> import torch
    >>> L2Normalize(MeanPool())(torch.tensor([[[3.0, 4.0]]]))
    tensor([[0.6000, 0.8000]])
    """

    def __init__(self, pool: nn.Module) -> None:
        super().__init__()
        self.pool = pool

    def forward(
        self, x: Float[Tensor, "B T C"], padding_mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B C"]:
        return F.normalize(self.pool(x, padding_mask), dim=-1)


PoolName = Literal["cls", "mean"]


def build_pool(name: PoolName) -> nn.Module:
    """The pooling that a config names."""
    return {"cls": ClsPool, "mean": MeanPool}[name]()


def build_pooled_head(head: str, pooling: PoolName) -> nn.Module:
    """The hidden states, the pooled vector, or the pooled vector of unit length ("embedding").

    >>> type(build_pooled_head("embedding", "mean")).__name__
    'L2Normalize'
    """
    if head not in ("hidden_states", "pooled", "embedding"):
        raise ConfigError(f"expected head hidden_states, pooled or embedding, got {head!r}")
    if head == "hidden_states":
        return HiddenStates()
    return build_pool(pooling) if head == "pooled" else L2Normalize(build_pool(pooling))


def non_padding(
    ids: Int[Tensor, "B T"], padding_mask: Bool[Tensor, "B T"] | None, pad_id: int | None
) -> Bool[Tensor, "B T"] | None:
    """A padding mask that also excludes tokens with the id of padding; None: all are tokens.

    >>> non_padding(torch.tensor([[5, 0, 0]]), None, 0)
    tensor([[ True, False, False]])
    """
    if pad_id is None:
        return padding_mask
    return ids != pad_id if padding_mask is None else padding_mask & (ids != pad_id)
