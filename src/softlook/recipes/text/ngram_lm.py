"""An n-gram language model with interpolated modified Kneser-Ney smoothing (Chen and Goodman, 1999)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from softlook.base.errors import ConfigError
from softlook.heads.ngram_lm import UNSEEN, NGramLM, NGramLMConfig
from softlook.train.batching.packed_stream import TokenizedDocuments

MAX_DISCOUNTED = 3
"""Counts of 1, 2, and 3 or more have a discount each."""
DEFAULT_DISCOUNT, MIN_DISCOUNT = 0.75, 0.1
"""The discount where there are too few n-grams to estimate it; and the least one, so that no probability is 0."""


@dataclass(frozen=True)
class NGramCounts:
    """All n-grams of one length, numbered by their sorted keys: number of the prefix * vocabulary + last token."""

    keys: Int[Tensor, " G"]
    remaining: Float[Tensor, " G"]
    """Count minus discount."""
    totals: Float[Tensor, " P"]
    """Of each prefix, the sum of counts; 0 if nothing follows it."""
    discounted: Float[Tensor, " P"]
    """Of each prefix, the sum of discounts: what is left for shorter n-grams."""


class KneserNeyModel:
    """P(w | h) = (c(h w) - D + D(h) P(w | h')) / c(h), where h' is h without its first token.

    D depends on the count, D(h) is the sum of all discounts after h. The counts of n-grams shorter than `order` are
    those of the different tokens before them. The shortest ones, single tokens, are interpolated with the uniform
    distribution: every token has a probability. N-grams do not cross documents.

    >>> documents = TokenizedDocuments(torch.tensor([1, 2, 1, 2, 1, 2, 3]), torch.tensor([0]))
    >>> model = KneserNeyModel(documents, vocab_size=4, order=2)
    >>> pairs = TokenizedDocuments(torch.tensor([1, 0, 1, 1, 1, 2, 1, 3]), torch.tensor([0, 2, 4, 6]))
    >>> model.logprobs(pairs).exp().sum().item()  # of each token after 1
    1.0...
    """

    def __init__(self, train: TokenizedDocuments, *, vocab_size: int, order: int) -> None:
        if order < 1:
            raise ConfigError(f"expected an order of at least 1, got {order}")
        self.vocab_size, self.order = vocab_size, order
        ids, offsets = train.ids.long(), _offsets(train)
        self.tables: list[NGramCounts] = []
        grams, keys, counts = ids, torch.arange(vocab_size), torch.bincount(ids, minlength=vocab_size)
        num_prefixes = 1
        for size in range(2, order + 1):
            longer, longer_keys, longer_counts, suffixes = self._extend(ids, offsets, grams, size)
            if not len(longer_keys):  # every document is shorter
                break
            # An n-gram at the start of a document has no token before it, and counts once.
            different = torch.bincount(suffixes, minlength=len(keys)).clamp(min=1) * (counts > 0)
            self.tables.append(_make_table(keys, different, num_prefixes, vocab_size))
            num_prefixes, grams, keys, counts = len(keys), longer, longer_keys, longer_counts
        self.tables.append(_make_table(keys, counts, num_prefixes, vocab_size))

    def _extend(self, ids: Tensor, offsets: Tensor, grams: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The n-gram that ends at each token; the keys and counts of all; and the number of each without its first."""
        ends = (offsets >= size - 1).nonzero()[:, 0]
        keys, numbers, counts = torch.unique(
            grams[ends - 1] * self.vocab_size + ids[ends], return_inverse=True, return_counts=True
        )
        longer, suffixes = torch.full_like(grams, UNSEEN), torch.empty_like(keys)
        longer[ends], suffixes[numbers] = numbers, grams[ends]
        return longer, keys, counts, suffixes

    def logprobs(self, documents: TokenizedDocuments) -> Float[Tensor, " T"]:
        """Log-probability of every token but the first of each document, given those before it in the document."""
        ids, offsets = documents.ids.long(), _offsets(documents)
        table = self.tables[0]
        probability = (table.remaining[ids] + table.discounted / self.vocab_size) / table.totals
        grams = ids
        for size, table in enumerate(self.tables[1:], 2):
            prefix = torch.cat([grams.new_tensor([UNSEEN]), grams[:-1]])
            prefix[offsets < size - 1] = UNSEEN
            keys = prefix * self.vocab_size + ids
            numbers = torch.searchsorted(table.keys, keys).clamp(max=len(table.keys) - 1)
            is_known = table.keys[numbers] == keys
            grams = torch.where(is_known, numbers, UNSEEN)
            known_prefix = prefix.clamp(min=0)
            total = table.totals[known_prefix] * (prefix != UNSEEN)
            interpolated = table.remaining[numbers] * is_known + table.discounted[known_prefix] * probability
            probability = torch.where(total > 0, interpolated / total, probability)
        return probability[offsets > 0].log()

    def to_module(self) -> NGramLM:
        """The same probabilities as a part of a model."""
        module = NGramLM(NGramLMConfig(sizes=tuple(len(table.keys) for table in self.tables[1:])), self.vocab_size)
        first, *longer = self.tables
        weights = {"unigram": (first.remaining + first.discounted / self.vocab_size) / first.totals}
        for number, table in enumerate(longer):
            weights[f"tables.{number}.keys"] = table.keys
            weights[f"tables.{number}.probability"] = table.remaining / table.totals[table.keys // self.vocab_size]
            weights[f"tables.{number}.backoff"] = torch.where(table.totals > 0, table.discounted / table.totals, 1.0)
        module.load_state_dict(module.state_dict() | weights)
        return module


def _make_table(keys: Tensor, counts: Tensor, num_prefixes: int, vocab_size: int) -> NGramCounts:
    discount = _discounts(counts)[counts.clamp(max=MAX_DISCOUNTED)]
    prefix = keys // vocab_size
    totals = torch.bincount(prefix, weights=counts.double(), minlength=num_prefixes)
    discounted = torch.bincount(prefix, weights=discount, minlength=num_prefixes)
    return NGramCounts(keys, counts.double() - discount, totals, discounted)


def _discounts(counts: Tensor) -> Float[Tensor, " 4"]:
    """The discount of counts of 0, 1, 2, and 3 or more."""
    n1, n2, n3, n4 = (float((counts == count).sum()) for count in range(1, 5))
    if min(n1, n2, n3, n4) == 0:
        return torch.tensor([0.0, *[DEFAULT_DISCOUNT] * MAX_DISCOUNTED], dtype=torch.float64)
    y = n1 / (n1 + 2 * n2)
    estimates = [1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3]
    bounded = [min(max(estimate, MIN_DISCOUNT), count) for count, estimate in enumerate(estimates, 1)]
    return torch.tensor([0.0, *bounded], dtype=torch.float64)


def _offsets(documents: TokenizedDocuments) -> Int[Tensor, " N"]:
    """The position of each token in its document."""
    index = torch.arange(len(documents.ids))
    return index - documents.starts[torch.searchsorted(documents.starts, index, right=True) - 1]
