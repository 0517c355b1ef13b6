"""A model of a token by its two neighbors: a baseline of masked language models."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from softlook.heads.ngram_lm import NeighborLM, NeighborLMConfig
from softlook.train.batching.packed_stream import TokenizedDocuments

DISCOUNT = 0.75
"""Subtracted from every count, for tokens that were not seen in a context (absolute discounting)."""


@dataclass(frozen=True)
class ContextTable:
    """How often each token occurs in each context. Keys are context * vocabulary + token, sorted."""

    keys: Int[Tensor, " G"]
    counts: Int[Tensor, " G"]
    vocab_size: int

    @staticmethod
    def count(contexts: Int[Tensor, " N"], tokens: Int[Tensor, " N"], vocab_size: int) -> "ContextTable":
        keys, counts = torch.unique(contexts * vocab_size + tokens, return_counts=True)
        return ContextTable(keys, counts, vocab_size)

    def smooth(self) -> "Smoothed":
        """Probabilities by absolute discounting, and the contexts that occur, in ascending order."""
        contexts, number = torch.unique(self.keys // self.vocab_size, return_inverse=True)
        totals = torch.bincount(number, weights=self.counts.double())
        probability = (self.counts - DISCOUNT) / totals[number]
        return Smoothed(contexts, self.keys, probability, DISCOUNT * torch.bincount(number) / totals)

    def interpolate(self, context: int, other: Float[Tensor, " V"]) -> Float[Tensor, " V"]:
        """The distribution of tokens in a context, interpolated with another; that one if the context is unknown."""
        bounds = torch.tensor([context * self.vocab_size, (context + 1) * self.vocab_size])
        first, last = torch.searchsorted(self.keys, bounds).tolist()
        if first == last:
            return other
        tokens, counts = self.keys[first:last] % self.vocab_size, self.counts[first:last].double()
        interpolated = other * (DISCOUNT * len(tokens))
        interpolated[tokens] += counts - DISCOUNT
        return interpolated / counts.sum()


@dataclass(frozen=True)
class Smoothed:
    """A table as probabilities: what each token adds in its context, and the factor of the other distribution."""

    contexts: Int[Tensor, " C"]
    keys: Int[Tensor, " G"]
    probability: Float[Tensor, " G"]
    backoff: Float[Tensor, " C"]


class NeighborModel:
    """P(token | left, right) by counts of both neighbors, interpolated with a product of those of each neighbor.

    The product, P(token | left) P(token | right) / P(token), assumes that both neighbors depend on the token only.
    Sentences are bounded by `vocab_size` as an additional token; `UNKNOWN` is a neighbor without information.

    >>> sentences = TokenizedDocuments(torch.tensor([1, 2, 3, 1, 2, 3, 1, 0]), torch.tensor([0, 3, 6]))
    >>> model = NeighborModel(sentences, vocab_size=4)
    >>> model.distribution(1, 3).argmax(), model.distribution(1, 3).sum()
    (tensor(2), tensor(1.0000, dtype=torch.float64))
    """

    UNKNOWN: ClassVar[int] = -1

    def __init__(self, train: TokenizedDocuments, *, vocab_size: int) -> None:
        ids, self.vocab_size = train.ids.long(), vocab_size
        counts = torch.bincount(ids, minlength=vocab_size).double() + 1
        self.unigram: Float[Tensor, " V"] = counts / counts.sum()
        is_first = torch.zeros(len(ids), dtype=torch.bool)
        is_first[train.starts[train.starts < len(ids)]] = True  # the last sentences may be empty
        is_last = torch.cat([is_first[1:], is_first.new_ones(1)])
        left, right = ids.roll(1).masked_fill(is_first, vocab_size), ids.roll(-1).masked_fill(is_last, vocab_size)
        self.left, self.right = ContextTable.count(left, ids, vocab_size), ContextTable.count(right, ids, vocab_size)
        self.both = ContextTable.count(left * (vocab_size + 1) + right, ids, vocab_size)

    def distribution(self, left: int, right: int) -> Float[Tensor, " V"]:
        """The probability of each token between two neighbors."""
        by_left = self.unigram if left == self.UNKNOWN else self.left.interpolate(left, self.unigram)
        by_right = self.unigram if right == self.UNKNOWN else self.right.interpolate(right, self.unigram)
        product = by_left * by_right / self.unigram
        product = product / product.sum()
        if self.UNKNOWN in (left, right):
            return product
        return self.both.interpolate(left * (self.vocab_size + 1) + right, product)

    def to_module(self, *, mask_id: int, special_ids: Sequence[int]) -> NeighborLM:
        """The same probabilities as a part of a model."""
        left, right, both = (table.smooth() for table in (self.left, self.right, self.both))
        ends = tuple(id for id in special_ids if id != mask_id)
        sizes = {"left": len(left.keys), "right": len(right.keys), "both": len(both.keys)}
        config = NeighborLMConfig(mask_id=mask_id, special_ids=ends, contexts=len(both.contexts), **sizes)
        module = NeighborLM(config, self.vocab_size)
        module.unigram.copy_(self.unigram)
        module.contexts.copy_(both.contexts)
        for table, own in ((module.left, left), (module.right, right)):
            table.keys.copy_(own.keys)
            table.probability.copy_(own.probability)
            table.backoff[own.contexts] = own.backoff.float()
        module.both.probability.copy_(both.probability)
        module.both.backoff.copy_(both.backoff)
        number = torch.searchsorted(both.contexts, both.keys // self.vocab_size)
        module.both.keys.copy_(number * self.vocab_size + both.keys % self.vocab_size)
        return module

    def predict(
        self, left: Int[Tensor, " N"], right: Int[Tensor, " N"], labels: Int[Tensor, " N"]
    ) -> tuple[Float[Tensor, " N"], Int[Tensor, " N"]]:
        """Of each token between two neighbors, the probability of its label, and the likeliest token."""
        probabilities, predictions = torch.empty(len(labels), dtype=torch.float64), torch.empty_like(labels)
        neighbors = zip(left.tolist(), right.tolist(), labels.tolist(), strict=True)
        for number, (before, after, label) in enumerate(neighbors):
            distribution = self.distribution(before, after)
            probabilities[number], predictions[number] = distribution[label], distribution.argmax()
        return probabilities, predictions
