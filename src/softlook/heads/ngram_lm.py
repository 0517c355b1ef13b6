"""`NGramLM`: an n-gram language model beside attention, and the gate that mixes their probabilities."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

UNSEEN = -1
"""The number of an n-gram that does not occur in the training text."""
NUM_CONFIDENCES = 3
"""Features of the gate beside the length of the known context: see `gate_features`."""
MIN_PROBABILITY = 1e-30


@dataclass(frozen=True, kw_only=True)
class NGramLMConfig:
    """Sizes of an n-gram language model."""

    sizes: tuple[int, ...]
    """Number of different n-grams of each length, from bigrams on."""

    @property
    def order(self) -> int:
        """Length of the longest n-grams."""
        return len(self.sizes) + 1


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
        keys = prefix * self.vocab_size + token
        numbers = torch.searchsorted(self.keys, keys).clamp(max=len(self.keys) - 1)
        return torch.where((self.keys[numbers] == keys) & (prefix != UNSEEN), numbers, UNSEEN)

    def interpolate(self, probability: Float[Tensor, "N V"], prefix: Int[Tensor, " N"]) -> Float[Tensor, "N V"]:
        """Probabilities of the next token after known prefixes, from those of the shorter n-grams."""
        first = torch.searchsorted(self.keys, prefix * self.vocab_size)
        counts = torch.searchsorted(self.keys, (prefix + 1) * self.vocab_size) - first
        row = torch.repeat_interleave(torch.arange(len(prefix), device=prefix.device), counts)
        place = torch.arange(len(row), device=row.device) + (first - counts.cumsum(0) + counts)[row]
        probability = probability * self.backoff[prefix].float()[:, None]
        probability[row, self.keys[place] % self.vocab_size] += self.probability[place].float()
        return probability


class NGramLM(nn.Module):
    """Mixes the logits of a language model with the probabilities of an n-gram model of the same tokens.

    p = g p_attention + (1 - g) p_ngrams. The gate g depends on the position, by the features of `gate_features`; its
    weights are fitted on held-out text. N-grams are not longer than the `positions` of their tokens allow: packed
    documents and padding are not crossed.

    All weights are buffers, since gradient descent does not train them; in training, the logits are returned as given.
    """

    unigram: Tensor
    gate: Tensor

    def __init__(self, config: NGramLMConfig, vocab_size: int) -> None:
        super().__init__()
        self.config, self.vocab_size, self.enabled = config, vocab_size, True
        prefixes = (vocab_size, *config.sizes[:-1])
        pairs = zip(config.sizes, prefixes, strict=False)
        self.tables = nn.ModuleList(NGramTable(size, count, vocab_size) for size, count in pairs)
        self.register_buffer("unigram", torch.full((vocab_size,), 1 / vocab_size))
        self.register_buffer("gate", torch.zeros(config.order + NUM_CONFIDENCES))

    def forward(
        self, logits: Float[Tensor, "B K V"], ids: Int[Tensor, "B S"], positions: Int[Tensor, "*B T"]
    ) -> Float[Tensor, "B K V"]:
        """Log-probabilities of the mix after the last K tokens, as logits. `ids` includes all earlier tokens."""
        if self.training or not self.enabled:
            return logits
        count = logits.shape[1]
        own, length = self.logprobs(ids, positions.expand(len(ids), -1)[:, -count:])
        attention = logits.float().log_softmax(-1)
        score = (self.gate_features(attention, own, length) @ self.gate.float())[..., None]
        return torch.logaddexp(attention + F.logsigmoid(score), own + F.logsigmoid(-score)).to(logits.dtype)

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
            rows = (prefix != UNSEEN).nonzero()[:, 0]
            probability[rows] = table.interpolate(probability[rows], prefix[rows])  # pyright: ignore[reportCallIssue]
            length[rows] = size
        return probability.clamp(min=MIN_PROBABILITY).log().view(*shape, -1), length.view(shape)

    def gate_features(
        self, attention: Float[Tensor, "*B V"], own: Float[Tensor, "*B V"], length: Int[Tensor, "*B"]
    ) -> Float[Tensor, "*B F"]:
        """The length of the known context, both models' highest log-probabilities, and the attention's entropy."""
        entropy = -(attention.exp() * attention).sum(-1)
        confidences = torch.stack([attention.amax(-1), own.amax(-1), entropy], -1)
        return torch.cat([F.one_hot(length, self.config.order).to(confidences.dtype), confidences], -1)

    def _contexts(self, ids: Int[Tensor, "B S"], positions: Int[Tensor, "B K"]) -> list[Int[Tensor, "B K"]]:
        """The number of the n-gram that ends at each of the last K tokens, for each length below the order."""
        count = positions.shape[1]
        ids = ids[:, -(count + max(self.config.order - 2, 0)) :].long()
        grams, contexts = ids, [ids[:, -count:]]
        for size, table in enumerate(self.tables[:-1], 2):
            grams = table.find(F.pad(grams[:, :-1], (1, 0), value=UNSEEN), ids)  # pyright: ignore[reportCallIssue]
            contexts.append(torch.where(positions >= size - 1, grams[:, -count:], UNSEEN))
        return contexts


def mix_logprobs(
    features: Float[Tensor, "N F"], gate: Float[Tensor, " F"], attention: Float[Tensor, " N"], own: Float[Tensor, " N"]
) -> Float[Tensor, " N"]:
    """Log-probabilities of given tokens in the mix, from those of the attention and of the n-grams.

    >>> mix_logprobs(torch.ones(1, 1), torch.zeros(1), torch.tensor([0.5]).log(), torch.tensor([0.1]).log()).exp()
    tensor([0.3000])
    """
    score = features @ gate
    return torch.logaddexp(attention + F.logsigmoid(score), own + F.logsigmoid(-score))
