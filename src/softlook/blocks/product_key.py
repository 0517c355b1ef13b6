"""Product-key memory layer."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.blocks.memory_usage import SlotUsage


@dataclass(frozen=True, kw_only=True)
class ProductKeyConfig:
    """Place and sizes of a product-key memory in a model."""

    layer: int
    """The block whose feed-forward layer it replaces."""
    heads: int = 4
    """Number of queries of each position."""
    n_subkeys: int = 128
    """Subkeys of each half: the memory has n_subkeys^2 slots."""
    top_k: int = 32
    """Slots that each query reads."""


class SelectedSlots(NamedTuple):
    """The top-k slots of each query and head, best first, and their softmax weights."""

    slots: Int[Tensor, "N H k"]
    weights: Float[Tensor, "N H k"]


class ProductKeys(nn.Module):
    """Exact top-k search among n_subkeys^2 product keys with 2 * n_subkeys comparisons.

    A key is the concatenation of two subkeys, so slot a * n_subkeys + b has the score of subkey a plus that of subkey
    b. Both subkeys of a top-k key are among the top k of their half: only top_k^2 sums are compared. Queries in,
    `SelectedSlots` out: the place for forward hooks.
    """

    def __init__(self, heads: int, query_dim: int, *, n_subkeys: int, top_k: int) -> None:
        super().__init__()
        if query_dim % 2:
            raise ConfigError(f"query_dim must be even, got {query_dim}")
        if not 1 <= top_k <= n_subkeys:
            raise ConfigError(f"top_k must be from 1 to n_subkeys = {n_subkeys}, got {top_k}")
        self.subkeys = nn.Parameter(torch.empty(heads, 2, n_subkeys, query_dim // 2))
        nn.init.uniform_(self.subkeys, -1 / math.sqrt(query_dim // 2), 1 / math.sqrt(query_dim // 2))
        self.n_subkeys, self.top_k = n_subkeys, top_k

    @property
    def slots(self) -> int:
        """Number of keys."""
        return self.n_subkeys**2

    def forward(self, query: Float[Tensor, "N H D"]) -> SelectedSlots:
        scores = torch.einsum("nhad,hasd->nhas", query.unflatten(-1, (2, -1)), self.subkeys)
        (first, second), (first_index, second_index) = (part.unbind(2) for part in scores.topk(self.top_k))
        sums = (first[..., :, None] + second[..., None, :]).flatten(-2)
        slots = (first_index[..., :, None] * self.n_subkeys + second_index[..., None, :]).flatten(-2)
        best, index = sums.topk(self.top_k)
        return SelectedSlots(slots.gather(-1, index), best.softmax(-1))


class ProductKeyMemory(nn.Module):
    """Product-key memory (Lample et al. 2019): a sparse layer of n_subkeys^2 value vectors, in place of an FFN.

    - `query_dim`: width of one head's query; default: dim.
    - `norm`: batch norm of the queries, which spreads them over more keys.
    - `sparse`: sparse gradients of the values, as `torch.optim.SparseAdam` takes them.

    >>> memory = ProductKeyMemory(16, heads=4, n_subkeys=32, top_k=8)
    >>> memory(torch.randn(2, 5, 16)).shape, memory.values.num_embeddings
    (torch.Size([2, 5, 16]), 1024)
    """

    def __init__(
        self,
        dim: int,
        heads: int = 4,
        *,
        n_subkeys: int = 512,
        top_k: int = 32,
        query_dim: int | None = None,
        norm: bool = True,
        sparse: bool = False,
    ) -> None:
        super().__init__()
        query_dim = dim if query_dim is None else query_dim
        self.heads = heads
        self.to_query = nn.Linear(dim, heads * query_dim)
        self.norm = nn.BatchNorm1d(heads * query_dim) if norm else nn.Identity()
        self.keys = ProductKeys(heads, query_dim, n_subkeys=n_subkeys, top_k=top_k)
        self.values = nn.EmbeddingBag(self.keys.slots, dim, mode="sum", sparse=sparse)
        nn.init.normal_(self.values.weight, std=1 / math.sqrt(dim))

    def forward(self, x: Float[Tensor, "*B C"]) -> Float[Tensor, "*B C"]:
        query = self.norm(self.to_query(x.reshape(-1, x.shape[-1])))
        selected = self.keys(query.unflatten(-1, (self.heads, -1)))
        output = self.values(selected.slots.flatten(1), per_sample_weights=selected.weights.flatten(1))
        return output.view_as(x)


def slot_weights(selected: SelectedSlots, slots: int) -> Float[Tensor, " slots"]:
    """The total weight of each slot over queries and heads.

    >>> slot_weights(SelectedSlots(torch.tensor([[[2, 0]]]), torch.tensor([[[0.75, 0.25]]])), 3)
    tensor([0.2500, 0.0000, 0.7500], dtype=torch.float64)
    """
    weights = selected.weights.detach().double().flatten()
    return weights.new_zeros(slots).index_add(0, selected.slots.flatten(), weights)


@contextmanager
def watch_usage(memory: ProductKeyMemory) -> Iterator[SlotUsage]:
    """Accumulate the weights of a memory's slots within the `with` block, by a forward hook.

    >>> memory = ProductKeyMemory(16, heads=2, n_subkeys=4, top_k=2)
    >>> with watch_usage(memory) as slot_usage:
    ...     output = memory(torch.randn(3, 100, 16))
    >>> slot_usage.weights.sum().round(), 0 < slot_usage.usage().fraction_used <= 1
    (tensor(600., dtype=torch.float64), True)
    """
    slot_usage = SlotUsage(memory.keys.slots)

    def record(module: nn.Module, args: object, selected: SelectedSlots) -> None:
        slot_usage.add(slot_weights(selected, memory.keys.slots), selected.slots.shape[:-1].numel())

    hook = memory.keys.register_forward_hook(record)
    try:
        yield slot_usage
    finally:
        hook.remove()
