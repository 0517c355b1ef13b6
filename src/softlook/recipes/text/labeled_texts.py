"""Labeled texts: encoding, maximum length, word dropout."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from softlook.base.tensors import truncate_pair
from softlook.data import LabeledText
from softlook.recipes.config.schema import ClassificationConfig
from softlook.recipes.text.corpus import chunk_by_size
from softlook.recipes.text.text_problem import TextProblem
from softlook.tokens import TextTokenizer
from softlook.tokens.template import template_from_tokenizer
from softlook.tokens.tokenizer import MAX_TEXT_CHARS
from softlook.train.batching.collate import ClassificationBatch, Ids, collate_classification
from softlook.train.batching.token_store import StoredExample, TokenStore

MIN_LENGTH, MAX_LENGTH, LENGTH_QUANTILE = 32, 512, 0.98
"""Automatic maximum length in tokens, so that this share of the texts is complete."""
TEXTS_PER_BATCH, MAX_BATCH_TOKENS = 32, 16_384
"""Texts of mean length in a batch, at least, and its tokens at most."""
Item = tuple[Ids, Ids, Any]
"""Ids of both texts, and the target: the index of a class, those of several labels, or a number."""


class ClassificationCollator:
    """Encodes labeled texts with special tokens, at most `max_length` tokens each, and collates them."""

    def __init__(self, tokenizer: TextTokenizer, max_length: int, problem: TextProblem) -> None:
        self.tokenizer, self.max_length, self.problem = tokenizer, max_length, problem
        self.template = template_from_tokenizer(tokenizer)
        self.max_ids = max_length - self.template.num_special_pair
        self.truncated_texts = self.truncated_tokens = 0

    def encode(self, examples: Sequence[LabeledText]) -> list[Item]:
        """Ids of both texts, truncated, and the target."""
        first = self.tokenizer.encode([example.text[:MAX_TEXT_CHARS] for example in examples])
        second = self.tokenizer.encode([(example.pair or "")[:MAX_TEXT_CHARS] for example in examples])
        rows = zip(first, second, map(self.problem.target, examples), strict=True)
        items = [(*truncate_pair(one, other, self.max_ids, keep_end=True), target) for one, other, target in rows]
        for one, other, item in zip(first, second, items, strict=True):
            dropped = len(one) + len(other) - len(item[0]) - len(item[1])
            self.truncated_texts += dropped > 0
            self.truncated_tokens += dropped
        return items

    def rows(self, examples: Iterable[LabeledText]) -> Iterator[tuple[Ids, Ids, Ids]]:
        """The same lazily, with the target as a row of ids."""
        for chunk in chunk_by_size(examples, lambda example: len(example.text) + len(example.pair or "")):
            for first, second, target in self.encode(chunk):
                yield first, second, self.problem.to_ids(target)

    def length(self, item: Item) -> int:
        """Tokens of an item, special tokens included."""
        special = self.template.num_special_pair if item[1] else self.template.num_special_single
        return len(item[0]) + len(item[1]) + special

    def lengths(self, store: TokenStore) -> torch.Tensor:
        """Tokens of each stored item, special tokens included."""
        first, second = store.lengths(0), store.lengths(1)
        special = torch.where(second > 0, self.template.num_special_pair, self.template.num_special_single)
        return first + second + special

    def collate_stored(self, items: Sequence[StoredExample]) -> ClassificationBatch:
        """A batch of items from a token store."""
        return self([(first, second, self.problem.from_ids(ids)) for first, second, ids in items])

    def __call__(self, items: Sequence[Item]) -> ClassificationBatch:
        join, pad_id = self.template.apply, self.tokenizer.pad_id
        collate = self.problem.collate
        return collate_classification(items, join=join, max_length=self.max_ids, pad_id=pad_id, collate_labels=collate)


def drop_words(p: float, batch: ClassificationBatch, generator: torch.Generator) -> ClassificationBatch:
    """Word dropout: hide tokens from attention with probability `p`, except the class token."""
    keep = torch.rand(batch.padding_mask.shape, generator=generator) >= p
    keep[:, 0] = True
    return replace(batch, padding_mask=batch.padding_mask & keep)


def select_max_length(lengths: torch.Tensor) -> int:
    """A multiple of 32 tokens that nearly all texts fit into.

    >>> select_max_length(torch.tensor([9, 12, 30])), select_max_length(torch.tensor([100] * 99 + [900]))
    (32, 128)
    """
    length = torch.quantile(lengths[:: max(len(lengths) // 100_000, 1)].float(), LENGTH_QUANTILE).item()
    return min(max(32 * math.ceil(length / 32), MIN_LENGTH), MAX_LENGTH)


def select_batch_tokens(mean_length: float, config: ClassificationConfig) -> int:
    """Tokens per batch: enough texts for a stable gradient, also if they are long."""
    texts = TEXTS_PER_BATCH // 2 if config.init_from else TEXTS_PER_BATCH
    return int(min(max(texts * mean_length, 1024), MAX_BATCH_TOKENS))


def describe_lengths(collator: ClassificationCollator, lengths: torch.Tensor, max_length: int) -> list[str]:
    """How many texts, and tokens, exceed the maximum length; `lengths` are those that `collator` truncated."""
    texts = int((lengths > max_length).sum()) if max_length < collator.max_length else collator.truncated_texts
    tokens = int((lengths - max_length).clamp(min=0).sum()) + collator.truncated_tokens
    message = f"Texts of up to {max_length} tokens."
    if not tokens:
        return [message]
    share = tokens / (int(lengths.sum()) + collator.truncated_tokens)
    return [
        f"{message} {texts:,} of {len(lengths):,} are longer: their first and last tokens are used, and {tokens:,} "
        f"tokens ({share:.1%}) in between are not. --max-length changes the limit."
    ]
