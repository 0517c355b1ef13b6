"""How evenly the slots of a memory are used."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class MemoryUsage:
    """How evenly the slots of a memory are used, by the total weight of each."""

    fraction_used: float
    """Fraction of slots with any weight."""
    divergence: float
    """KL divergence from uniform use, in nats: 0 if all slots are used alike, log(slots) if one is used alone."""
    perplexity: float
    """Effective number of slots: `slots` at best, 1 at worst."""


def usage(slot_weights: Float[Tensor, " slots"]) -> MemoryUsage:
    """Usage statistics, from the total weight of each slot.

    >>> usage(torch.tensor([2.0, 2.0, 0.0, 0.0]))
    MemoryUsage(fraction_used=0.5, divergence=0.693..., perplexity=2.0)
    """
    if not bool(slot_weights.sum() > 0):
        raise ValueError("no slot has any weight: call the memory first")
    shares = slot_weights.double() / slot_weights.double().sum()
    entropy = -torch.xlogy(shares, shares).sum().item()
    fraction = (slot_weights > 0).double().mean().item()
    return MemoryUsage(fraction, math.log(len(slot_weights)) - entropy, math.exp(entropy))


class SlotUsage:
    """The total weight of each slot of a memory, accumulated over calls.

    >>> slot_usage = SlotUsage(3)
    >>> slot_usage.add(torch.tensor([0.5, 0.25, 0.0]), queries=1)
    >>> slot_usage.weight_share, round(slot_usage.usage().fraction_used, 2)
    (0.75, 0.67)
    """

    def __init__(self, slots: int) -> None:
        self.weights, self.queries = torch.zeros(slots, dtype=torch.float64), 0

    def add(self, slot_weights: Float[Tensor, " slots"], queries: int) -> None:
        """Add the weights of so many queries, each head counted on its own."""
        self.weights = self.weights.to(slot_weights.device) + slot_weights.detach().double()
        self.queries += queries

    @property
    def weight_share(self) -> float:
        """Share of the weight of all queries that the slots got; the rest is that of other keys."""
        return self.weights.sum().item() / max(self.queries, 1)

    def usage(self) -> MemoryUsage:
        return usage(self.weights)
