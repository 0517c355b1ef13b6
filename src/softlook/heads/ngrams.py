"""`NGramClassifier`: a linear model on TF-IDF weights of token and character n-grams."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from softlook.heads.classification import Problem, normalize_logits

CHARACTER_WEIGHT = 0.5
"""Length of the vector of character n-grams; that of the token n-grams has length 1."""
MIN_CHARACTERS, MAX_CHARACTERS = 2, 5
"""Lengths of character n-grams."""
TOKEN_END = ">"


@dataclass(frozen=True, kw_only=True)
class NGramConfig:
    """Sizes of an n-gram classifier."""

    bigrams: int
    """Different token bigrams."""
    characters: int
    """Different character n-grams."""
    character_entries: int
    """Character n-grams of all tokens together."""


class NGramFeatures(NamedTuple):
    """A sparse matrix of features, in coordinates."""

    row: Int[Tensor, " N"]
    column: Int[Tensor, " N"]
    value: Float[Tensor, " N"]


class NGramClassifier(nn.Module):
    """Logits, or numbers, from the tokens, token bigrams and character n-grams of a text, whatever their order.

    The features are TF-IDF weights with a logarithmic term frequency, normalized for each text. Everything is a
    function of the token ids: `bigrams` has the known bigrams, and `character_ids` the character n-grams of each token
    of the vocabulary. The weights are buffers, since gradient descent does not train them.

    `mix(logits, ids, padding_mask)` adds another model's output, both with a weight fitted on held-out data: `weights`.
    What is added are log-probabilities of exclusive classes, logits of independent labels, or numbers: see `problem`.
    """

    weight: Tensor
    bias: Tensor
    idf: Tensor
    bigrams: Tensor
    character_starts: Tensor
    character_ids: Tensor
    weights: Tensor

    def __init__(self, config: NGramConfig, vocab_size: int, classes: int, *, problem: Problem | None = None) -> None:
        super().__init__()
        self.config, self.vocab_size, self.enabled = config, vocab_size, True
        self.problem: Problem | None = problem
        self.num_features = vocab_size + config.bigrams + config.characters
        self.register_buffer("weight", torch.zeros(self.num_features, classes))
        self.register_buffer("bias", torch.zeros(classes))
        self.register_buffer("idf", torch.ones(self.num_features))
        self.register_buffer("bigrams", torch.zeros(config.bigrams, dtype=torch.int64))
        self.register_buffer("character_starts", torch.zeros(vocab_size + 1, dtype=torch.int64))
        self.register_buffer("character_ids", torch.zeros(config.character_entries, dtype=torch.int64))
        self.register_buffer("weights", torch.tensor([1.0, 0.0]))

    def forward(self, ids: Int[Tensor, "B T"], padding_mask: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "B K"]:
        return self.logits(self.features(ids, padding_mask), len(ids))

    def logits(self, features: NGramFeatures, count: int) -> Float[Tensor, "B K"]:
        """Class logits of `count` texts from their features."""
        logits = self.bias.to(features.value.dtype).expand(count, -1).clone()
        return logits.index_add_(0, features.row, self.weight[features.column] * features.value[:, None])

    def mix(
        self, logits: Float[Tensor, "B K"], ids: Int[Tensor, "B T"], padding_mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B K"]:
        """A weighted sum of another model's output and this one's."""
        own = normalize_logits(self(ids, padding_mask), self.problem)
        return self.weights[0] * normalize_logits(logits.float(), self.problem) + self.weights[1] * own

    def features(self, ids: Int[Tensor, "B T"], padding_mask: Bool[Tensor, "B T"] | None = None) -> NGramFeatures:
        """TF-IDF weights of all n-grams of each text."""
        mask = torch.ones_like(ids, dtype=torch.bool) if padding_mask is None else padding_mask
        counts, columns, rows = self.count(ids, mask)
        return self.normalize(rows, columns, 1 + counts.log(), len(ids))

    def normalize(self, row: Tensor, column: Tensor, frequency: Tensor, count: int) -> NGramFeatures:
        """TF-IDF weights of `count` texts from their term frequencies."""
        value = frequency * self.idf[column]
        is_character = column >= self.vocab_size + self.config.bigrams
        group = 2 * row + is_character
        norm = value.new_zeros(2 * count).index_add_(0, group, value.square()).sqrt().clamp(min=1e-12)
        scale = torch.where(is_character, CHARACTER_WEIGHT, 1.0)
        return NGramFeatures(row, column, value * scale / norm[group])

    def count(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The count, column and row of each different n-gram."""
        row = torch.arange(len(ids), device=ids.device)[:, None].expand_as(ids)
        tokens, token_rows = ids[mask].long(), row[mask]
        has_next = mask[:, :-1] & mask[:, 1:]
        bigrams, is_known = self._bigrams(bigram_keys(ids, self.vocab_size)[has_next])
        characters, of_token = self._characters(tokens)
        columns = [tokens, self.vocab_size + bigrams, self.vocab_size + self.config.bigrams + characters]
        rows = [token_rows, row[:, :-1][has_next][is_known], token_rows[of_token]]
        keys, counts = torch.unique(torch.cat(rows) * self.num_features + torch.cat(columns), return_counts=True)
        return counts.float(), keys % self.num_features, keys // self.num_features

    def _bigrams(self, keys: Int[Tensor, " N"]) -> tuple[Tensor, Tensor]:
        """The numbers of the known bigrams, and which of them are known."""
        if not self.config.bigrams:
            return keys[:0], torch.zeros_like(keys, dtype=torch.bool)
        place = torch.searchsorted(self.bigrams, keys).clamp(max=self.config.bigrams - 1)
        is_known = self.bigrams[place] == keys
        return place[is_known], is_known

    def _characters(self, tokens: Int[Tensor, " N"]) -> tuple[Tensor, Tensor]:
        """The character n-grams of tokens, and the token that each belongs to."""
        starts, ends = self.character_starts[tokens], self.character_starts[tokens + 1]
        of_token = torch.repeat_interleave(torch.arange(len(tokens), device=tokens.device), ends - starts)
        first = (ends - starts).cumsum(0) - (ends - starts)
        position = torch.arange(len(of_token), device=tokens.device) - first[of_token] + starts[of_token]
        return self.character_ids[position], of_token


def bigram_keys(ids: Int[Tensor, "*B T"], vocab_size: int) -> Int[Tensor, "*B T-1"]:
    """A number for each pair of neighbouring tokens.

    >>> bigram_keys(torch.tensor([1, 2, 3]), vocab_size=10)
    tensor([12, 23])
    """
    return ids[..., :-1].long() * vocab_size + ids[..., 1:].long()


def build_ngrams(
    vocabulary: Sequence[str], bigrams: Int[Tensor, " N"], classes: int, *, problem: Problem | None = None
) -> NGramClassifier:
    """A new classifier for a vocabulary and the keys of known bigrams, in ascending order.

    >>> classifier = build_ngrams(["\u0120cat", "\u0120cats", "dog"], torch.tensor([1, 5]), classes=2)
    >>> classifier.config.characters, classifier.character_starts.tolist()
    (24, [0, 10, 24, 30])
    """
    ngrams = [character_ngrams(token) for token in vocabulary]
    index = {ngram: number for number, ngram in enumerate(dict.fromkeys(ngram for token in ngrams for ngram in token))}
    ids = [index[ngram] for token in ngrams for ngram in token]
    config = NGramConfig(bigrams=len(bigrams), characters=len(index), character_entries=len(ids))
    classifier = NGramClassifier(config, len(vocabulary), classes, problem=problem)
    classifier.bigrams.copy_(bigrams)
    classifier.character_starts.copy_(torch.tensor([0, *map(len, ngrams)]).cumsum(0))
    classifier.character_ids.copy_(torch.tensor(ids, dtype=torch.int64))
    return classifier


def character_ngrams(token: str) -> list[str]:
    """The character n-grams of a token, with a mark at its end.

    >>> character_ngrams("ab")
    ['ab', 'b>', 'ab>']
    """
    text = token + TOKEN_END if len(token) > 1 else token
    lengths = range(MIN_CHARACTERS, MAX_CHARACTERS + 1)
    return [text[start : start + length] for length in lengths for start in range(len(text) - length + 1)]
