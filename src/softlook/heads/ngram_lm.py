"""Count models of tokens beside attention, and the gate that mixes the probabilities of both.

`NGramLM` predicts the next token from those before it, `NeighborLM` a token from its two neighbors.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

UNSEEN = -1
"""The number of an n-gram that does not occur in the training text."""
NUM_CONFIDENCES = 3
"""Features of the gate beside the length of the known context: see `gate_features`."""
MIN_PROBABILITY = 1e-30
NEIGHBOR_KINDS = 4
"""No known neighbor, one, two, or two that are known together."""


@dataclass(frozen=True, kw_only=True)
class NGramLMConfig:
    """Sizes of an n-gram language model."""

    sizes: tuple[int, ...]
    """Number of different n-grams of each length, from bigrams on."""

    @property
    def order(self) -> int:
        """Length of the longest n-grams."""
        return len(self.sizes) + 1


def find_sorted(keys: Int[Tensor, " N"], values: Int[Tensor, "*B"]) -> Int[Tensor, "*B"]:
    """The index of each value among sorted keys; -1 for those that are not there.

    >>> find_sorted(torch.tensor([2, 5, 9]), torch.tensor([5, 6]))
    tensor([ 1, -1])
    """
    if not len(keys):
        return torch.full_like(values, UNSEEN)
    index = torch.searchsorted(keys, values).clamp(max=len(keys) - 1)
    return torch.where(keys[index] == values, index, UNSEEN)


class NGramTable(nn.Module):
    """All n-grams of one length, numbered by their sorted keys: number of the prefix * vocabulary + last token.

    The buffers are the keys; of each n-gram what it adds to its last token's probability; and of each prefix the factor
    of the shorter n-grams' probabilities.
    """

    keys: Tensor
    probability: Tensor
    backoff: Tensor

    def __init__(self, size: int, num_prefixes: int, vocab_size: int) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.register_buffer("keys", torch.zeros(size, dtype=torch.int64))
        self.register_buffer("probability", torch.zeros(size))
        self.register_buffer("backoff", torch.ones(num_prefixes))

    def find(self, prefix: Int[Tensor, "*B"], token: Int[Tensor, "*B"]) -> Int[Tensor, "*B"]:
        """The numbers of n-grams; -1 for those that are not in the table."""
        return find_sorted(self.keys, prefix * self.vocab_size + token).where(prefix != UNSEEN, UNSEEN)

    def interpolate(self, probability: Float[Tensor, "N V"], prefix: Int[Tensor, " N"]) -> Int[Tensor, " M"]:
        """Update probabilities of the next token in rows with a known prefix, in place; return the numbers of those."""
        rows = (prefix != UNSEEN).nonzero()[:, 0]
        prefix = prefix[rows]
        first = torch.searchsorted(self.keys, prefix * self.vocab_size)
        counts = torch.searchsorted(self.keys, (prefix + 1) * self.vocab_size) - first
        row = torch.repeat_interleave(torch.arange(len(prefix), device=prefix.device), counts)
        index = torch.arange(len(row), device=row.device) + (first - counts.cumsum(0) + counts)[row]
        probability[rows] *= self.backoff[prefix].float()[:, None]
        probability[rows[row], self.keys[index] % self.vocab_size] += self.probability[index].float()
        return rows


class GatedMix(nn.Module):
    """Base of count models: mixes their probabilities with those of the attention.

    p = g p_attention + (1 - g) p_counts. The gate g depends on the position, by the features of `gate_features`; its
    weights are fitted on held-out text. All weights are buffers, since gradient descent does not train them.
    """

    gate: Tensor

    def __init__(self, kinds: int) -> None:
        super().__init__()
        self.kinds, self.enabled = kinds, True
        self.register_buffer("gate", torch.zeros(kinds + NUM_CONFIDENCES))

    def combine(
        self, logits: Float[Tensor, "*B V"], own: Float[Tensor, "*B V"], kind: Int[Tensor, "*B"]
    ) -> Float[Tensor, "*B V"]:
        """Log-probabilities of the mix, as logits."""
        attention = logits.float().log_softmax(-1)
        score = (self.gate_features(attention, own, kind) @ self.gate.float())[..., None]
        return torch.logaddexp(attention + F.logsigmoid(score), own + F.logsigmoid(-score)).to(logits.dtype)

    def gate_features(
        self, attention: Float[Tensor, "*B V"], own: Float[Tensor, "*B V"], kind: Int[Tensor, "*B"]
    ) -> Float[Tensor, "*B F"]:
        """The kind of the context, both models' highest log-probabilities, and the attention's entropy."""
        entropy = -(attention.exp() * attention).sum(-1)
        confidences = torch.stack([attention.amax(-1), own.amax(-1), entropy], -1)
        return torch.cat([F.one_hot(kind, self.kinds).to(confidences.dtype), confidences], -1)


class NGramLM(GatedMix):
    """An n-gram model of the next token. The kind of a context, for the gate, is the length of its known part.

    N-grams are not longer than the `positions` of their tokens allow: packed documents and padding are not crossed.
    """

    unigram: Tensor

    def __init__(self, config: NGramLMConfig, vocab_size: int) -> None:
        super().__init__(config.order)
        self.config, self.vocab_size = config, vocab_size
        prefixes = (vocab_size, *config.sizes[:-1])
        pairs = zip(config.sizes, prefixes, strict=False)
        self.tables = nn.ModuleList(NGramTable(size, count, vocab_size) for size, count in pairs)
        self.register_buffer("unigram", torch.full((vocab_size,), 1 / vocab_size))

    def forward(
        self, logits: Float[Tensor, "B K V"], ids: Int[Tensor, "B S"], positions: Int[Tensor, "*B T"]
    ) -> Float[Tensor, "B K V"]:
        """Log-probabilities of the mix after the last K tokens, as logits. `ids` includes all earlier tokens.

        In training, the logits are returned as given.
        """
        if self.training or not self.enabled:
            return logits
        return self.combine(logits, *self.logprobs(ids, positions.expand(len(ids), -1)[:, -logits.shape[1] :]))

    def logprobs(
        self, ids: Int[Tensor, "B S"], positions: Int[Tensor, "B K"]
    ) -> tuple[Float[Tensor, "B K V"], Int[Tensor, "B K"]]:
        """Log-probabilities of the token after each of the last K, and the number of tokens in the known context.

        `positions` are those of the last K tokens.
        """
        shape = positions.shape
        contexts = [grams.flatten() for grams in self._contexts(ids, positions)]
        probability = self.unigram.float().repeat(len(contexts[0]), 1)
        length = torch.zeros_like(contexts[0])
        for size, (table, prefix) in enumerate(zip(self.tables, contexts, strict=False), 1):
            length[table.interpolate(probability, prefix)] = size  # pyright: ignore[reportCallIssue]
        return probability.clamp(min=MIN_PROBABILITY).log().view(*shape, -1), length.view(shape)

    def _contexts(self, ids: Int[Tensor, "B S"], positions: Int[Tensor, "B K"]) -> list[Int[Tensor, "B K"]]:
        """The number of the n-gram that ends at each of the last K tokens, for each length below the order."""
        count = positions.shape[1]
        ids = ids[:, -(count + max(self.config.order - 2, 0)) :].long()
        grams, contexts = ids, [ids[:, -count:]]
        for size, table in enumerate(self.tables[:-1], 2):
            grams = table.find(F.pad(grams[:, :-1], (1, 0), value=UNSEEN), ids)  # pyright: ignore[reportCallIssue]
            contexts.append(torch.where(positions >= size - 1, grams[:, -count:], UNSEEN))
        return contexts


@dataclass(frozen=True, kw_only=True)
class NeighborLMConfig:
    """Sizes of a model of tokens by their neighbors."""

    mask_id: int
    """A token without information about its neighbors."""
    special_ids: tuple[int, ...]
    """Tokens that count as the end of a text."""
    left: int
    """Different pairs of a left neighbor and a token."""
    right: int
    """Different pairs of a right neighbor and a token."""
    contexts: int
    """Different pairs of neighbors."""
    both: int
    """Different tokens between different pairs of neighbors."""


class NeighborLM(GatedMix):
    """A model of a token by its two neighbors, as `softlook.recipes.text.neighbor_model` counts them.

    The kind of a context, for the gate, is the number of known neighbors, or that both are known together; apart for
    masked tokens.
    """

    unigram: Tensor
    contexts: Tensor

    def __init__(self, config: NeighborLMConfig, vocab_size: int) -> None:
        super().__init__(2 * NEIGHBOR_KINDS)
        self.config, self.vocab_size, end = config, vocab_size, vocab_size + 1
        self.left, self.right = (NGramTable(size, end, vocab_size) for size in (config.left, config.right))
        self.both = NGramTable(config.both, config.contexts, vocab_size)
        self.register_buffer("contexts", torch.zeros(config.contexts, dtype=torch.int64))
        self.register_buffer("unigram", torch.full((vocab_size,), 1 / vocab_size))

    def mix(
        self, logits: Float[Tensor, "B T V"], ids: Int[Tensor, "B T"], padding_mask: object = None
    ) -> Float[Tensor, "B T V"]:
        """Log-probabilities of the mix at every position, as logits."""
        own, kind = self.logprobs(ids, torch.ones_like(ids, dtype=torch.bool))
        return self.combine(logits, own.view_as(logits), kind.view_as(ids))

    def logprobs(
        self, ids: Int[Tensor, "B T"], selected: Bool[Tensor, "B T"]
    ) -> tuple[Float[Tensor, "N V"], Int[Tensor, " N"]]:
        """Log-probabilities of the token at each selected position, and the kind of its context."""
        known = self._known(ids)
        left, right = (side[selected] for side in (known[:, :-2], known[:, 2:]))
        by_left, by_right = self.unigram.float().repeat(len(left), 1), self.unigram.float().repeat(len(right), 1)
        kind = torch.zeros_like(left)
        kind[self.left.interpolate(by_left, left)] += 1
        kind[self.right.interpolate(by_right, right)] += 1
        probability = by_left * by_right / self.unigram.float()
        probability /= probability.sum(-1, keepdim=True)
        context = find_sorted(self.contexts, left * (self.vocab_size + 1) + right)
        kind[self.both.interpolate(probability, context.where(torch.minimum(left, right) != UNSEEN, UNSEEN))] = 3
        kind += NEIGHBOR_KINDS * (ids[selected] == self.config.mask_id)
        return probability.clamp(min=MIN_PROBABILITY).log(), kind

    def _known(self, ids: Int[Tensor, "B T"]) -> Int[Tensor, "B T+2"]:
        """The tokens as neighbors, with an end of the text before and after them."""
        special = torch.tensor(self.config.special_ids, device=ids.device, dtype=torch.int64)
        known = ids.long().masked_fill(torch.isin(ids, special), self.vocab_size)
        known = known.masked_fill(ids == self.config.mask_id, UNSEEN)
        return F.pad(known, (1, 1), value=self.vocab_size)


def mix_logprobs(
    features: Float[Tensor, "N F"], gate: Float[Tensor, " F"], attention: Float[Tensor, " N"], own: Float[Tensor, " N"]
) -> Float[Tensor, " N"]:
    """Log-probabilities of given tokens in the mix, from those of the attention and of the n-grams.

    >>> mix_logprobs(torch.ones(1, 1), torch.zeros(1), torch.tensor([0.5]).log(), torch.tensor([0.1]).log()).exp()
    tensor([0.3000])
    """
    score = features @ gate
    return torch.logaddexp(attention + F.logsigmoid(score), own + F.logsigmoid(-score))
