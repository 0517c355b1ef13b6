"""One vector for a whole sequence. A pool is called as `pool(x, present)`: vectors, and which of them are tokens."""

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from softlook.base.errors import ConfigError
from softlook.heads.classify import States


class MeanPool(nn.Module):
    """The mean of the tokens that are there. The order of the tokens plays no part in it.

    >>> import torch
    >>> x = torch.tensor([[[1.0, 2.0], [3.0, 4.0], [9.0, 9.0]]])
    >>> MeanPool()(x, torch.tensor([[True, True, False]]))
    tensor([[2., 3.]])
    """

    def forward(self, x: Float[Tensor, "B T C"], present: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "B C"]:
        if present is None:
            return x.mean(1)
        # Filled, not multiplied: what stands where no token is may be anything, a NaN too.
        kept = x.masked_fill(~present[..., None], 0.0)
        return kept.sum(1) / present.sum(1, keepdim=True).clamp(min=1)


class FirstPool(nn.Module):
    """The first token that is there: a unit that has looked at all the others, as BERT's [CLS].

    >>> import torch
    >>> x = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])
    >>> FirstPool()(x), FirstPool()(x, torch.tensor([[False, True]]))
    (tensor([[1., 2.]]), tensor([[3., 4.]]))
    """

    def forward(self, x: Float[Tensor, "B T C"], present: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "B C"]:
        if present is None:
            return x[:, 0]
        first = present.int().argmax(1)  # of equals, argmax takes the first
        return x.gather(1, first[:, None, None].expand(-1, 1, x.shape[-1]))[:, 0]


class LastPool(nn.Module):
    """The last token that is there: in a decoder, the one that has seen all the others.

    >>> import torch
    >>> x = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])
    >>> LastPool()(x), LastPool()(x, torch.tensor([[True, False]]))
    (tensor([[3., 4.]]), tensor([[1., 2.]]))
    """

    def forward(self, x: Float[Tensor, "B T C"], present: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "B C"]:
        if present is None:
            return x[:, -1]
        places = torch.arange(present.shape[1], device=present.device)
        last = (places * present).argmax(1)  # the first token where none is there
        return x.gather(1, last[:, None, None].expand(-1, 1, x.shape[-1]))[:, 0]


def readable(
    ids: Int[Tensor, "B T"], present: Bool[Tensor, "B T"] | None, pad: int | None
) -> Bool[Tensor, "B T"] | None:
    """Which tokens a pool may read: those that are there, and whose id is not that of padding; None for all.

    >>> readable(torch.tensor([[5, 0, 0]]), None, 0)
    tensor([[ True, False, False]])
    """
    if pad is None:
        return present
    return ids != pad if present is None else present & (ids != pad)


class DensePool(nn.Module):
    """A pooled vector through a dense layer and a bend, as BERT makes the vector of a sentence.

    >>> import torch
    >>> DensePool(FirstPool(), 4, torch.tanh)(torch.randn(2, 3, 4)).shape
    torch.Size([2, 4])
    """

    def __init__(self, pool: nn.Module, dim: int, act: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.pool, self.to_pooled, self.act = pool, nn.Linear(dim, dim), act

    def forward(self, x: Float[Tensor, "B T C"], present: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "B C"]:
        return self.act(self.to_pooled(self.pool(x, present)))


class LengthOne(nn.Module):
    """A pooled vector, stretched to length one: the dot product of two of them is the cosine of their angle.

    >>> import torch
    >>> LengthOne(MeanPool())(torch.tensor([[[3.0, 4.0]]]))
    tensor([[0.6000, 0.8000]])
    """

    def __init__(self, pool: nn.Module) -> None:
        super().__init__()
        self.pool = pool

    def forward(self, x: Float[Tensor, "B T C"], present: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "B C"]:
        return F.normalize(self.pool(x, present), dim=-1)


PoolName = Literal["first", "mean"]


def pool_of(name: PoolName) -> nn.Module:
    """The pool that a config names, which has nothing to learn."""
    return {"first": FirstPool, "mean": MeanPool}[name]()


def pooled_head(head: str, pooling: PoolName) -> nn.Module:
    """Vectors of the tokens ("states"), one for the whole ("pooled"), or one with length one ("embedding").

    >>> type(pooled_head("embedding", "mean")).__name__
    'LengthOne'
    """
    if head not in ("states", "pooled", "embedding"):
        raise ConfigError(f"this model has no head {head!r}; it has states, pooled, embedding")
    if head == "states":
        return States()
    return pool_of(pooling) if head == "pooled" else LengthOne(pool_of(pooling))
