"""Product-key memory: a soft look-up in a very large dictionary, of which only the few best keys are ever touched."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from softlook.base.errors import ConfigError


class Found(NamedTuple):
    """What was found: for each query and head the best slots, best first, and how much each counts."""

    slots: Int[Tensor, "N H k"]
    weights: Float[Tensor, "N H k"]


class ProductKeys(nn.Module):
    """The `top` best of sides x sides keys, exactly, for the price of 2 x sides comparisons.

    A key is a first half and a second half, each from a list of `sides`, so that slot a * sides + b has the
    score of half a plus that of half b. A key among the best has both of its halves among the best, or others
    would beat it: only top x top sums are compared. It is a boundary to watch at: queries in, `Found` out.
    """

    def __init__(self, heads: int, width: int, *, sides: int, top: int) -> None:
        super().__init__()
        if width % 2:
            raise ConfigError(f"a product key has two halves of one width; a query {width} wide cannot be halved")
        if not 1 <= top <= sides:
            raise ConfigError(f"the {top} best keys are looked for among {sides} halves: 1 to {sides} can be found")
        self.halves = nn.Parameter(torch.empty(heads, 2, sides, width // 2))
        nn.init.uniform_(self.halves, -1 / math.sqrt(width // 2), 1 / math.sqrt(width // 2))
        self.sides, self.top = sides, top

    @property
    def slots(self) -> int:
        """How many keys there are for each head."""
        return self.sides**2

    def forward(self, query: Float[Tensor, "N H D"]) -> Found:
        scores = torch.einsum("nhad,hasd->nhas", query.unflatten(-1, (2, -1)), self.halves)
        (first, second), (first_at, second_at) = (part.unbind(2) for part in scores.topk(self.top))
        sums = (first[..., :, None] + second[..., None, :]).flatten(-2)
        numbers = (first_at[..., :, None] * self.sides + second_at[..., None, :]).flatten(-2)
        best, places = sums.topk(self.top)
        return Found(numbers.gather(-1, places), best.softmax(-1))


class ProductKeyMemory(nn.Module):
    """sides x sides learned vectors, of which each head of each position reads the `top` best. It can stand in place
    of a feed-forward layer.

    - `width`: that of one head's query.
    - `norm`: batch-norm the queries, which spreads them over more of the keys.
    - `sparse`: gradients of the values for the slots that were read only, as `torch.optim.SparseAdam` takes them.

    >>> memory = ProductKeyMemory(16, heads=4, sides=32, top=8)
    >>> memory(torch.randn(2, 5, 16)).shape, memory.values.num_embeddings
    (torch.Size([2, 5, 16]), 1024)
    """

    def __init__(
        self,
        dim: int,
        heads: int = 4,
        *,
        sides: int = 512,
        top: int = 32,
        width: int | None = None,
        norm: bool = True,
        sparse: bool = False,
    ) -> None:
        super().__init__()
        width = dim if width is None else width
        self.heads = heads
        self.to_query = nn.Linear(dim, heads * width)
        self.norm = nn.BatchNorm1d(heads * width) if norm else nn.Identity()
        self.keys = ProductKeys(heads, width, sides=sides, top=top)
        self.values = nn.EmbeddingBag(self.keys.slots, dim, mode="sum", sparse=sparse)
        nn.init.normal_(self.values.weight, std=1 / math.sqrt(dim))

    def forward(self, x: Float[Tensor, "*places C"]) -> Float[Tensor, "*places C"]:
        query = self.norm(self.to_query(x.reshape(-1, x.shape[-1])))
        found = self.keys(query.unflatten(-1, (self.heads, -1)))
        read = self.values(found.slots.flatten(1), per_sample_weights=found.weights.flatten(1))
        return read.view_as(x)


@dataclass(frozen=True)
class Usage:
    """How well a memory is used, by how much weight each slot was given."""

    share: float
    """Of all slots, those that were read at all."""
    divergence: float
    """From an even use of all slots, in nats (KL): 0 where every slot gets the same, log(slots) where one gets all."""
    perplexity: float
    """How many slots, evenly used, would be as hard to guess: `slots` at best, 1 at worst."""


def usage(received: Float[Tensor, " slots"]) -> Usage:
    """What the weight that each slot was given tells.

    >>> usage(torch.tensor([2.0, 2.0, 0.0, 0.0]))
    Usage(share=0.5, divergence=0.693..., perplexity=2.0)
    """
    if not bool(received.sum() > 0):
        raise ValueError("no slot was given any weight: let the memory read something first")
    shares = received.double() / received.double().sum()
    entropy = -torch.xlogy(shares, shares).sum().item()
    return Usage((received > 0).double().mean().item(), math.log(len(received)) - entropy, math.exp(entropy))


def received(found: Found, slots: int) -> Float[Tensor, " slots"]:
    """The weight that each slot was given, added up over queries and heads.

    >>> received(Found(torch.tensor([[[2, 0]]]), torch.tensor([[[0.75, 0.25]]])), 3)
    tensor([0.2500, 0.0000, 0.7500], dtype=torch.float64)
    """
    weights = found.weights.detach().double().flatten()
    return weights.new_zeros(slots).index_add(0, found.slots.flatten(), weights)


class Tally:
    """The weight each slot of a memory was given while it was watched."""

    def __init__(self, slots: int) -> None:
        self.received = torch.zeros(slots, dtype=torch.float64)

    def add(self, found: Found) -> None:
        self.received = self.received.to(found.slots.device) + received(found, len(self.received))

    def usage(self) -> Usage:
        return usage(self.received)


@contextmanager
def watch_usage(memory: ProductKeyMemory) -> Iterator[Tally]:
    """Add up, from outside, what the slots of a memory are given until the end of the block.

    >>> memory = ProductKeyMemory(16, heads=2, sides=4, top=2)
    >>> with watch_usage(memory) as tally:
    ...     read = memory(torch.randn(3, 100, 16))
    >>> tally.received.sum().round(), 0 < tally.usage().share <= 1
    (tensor(600., dtype=torch.float64), True)
    """
    tally = Tally(memory.keys.slots)

    def note(module: nn.Module, args: tuple[Tensor, ...], found: Found) -> None:
        tally.add(found)

    hook = memory.keys.register_forward_hook(note)
    try:
        yield tally
    finally:
        hook.remove()
