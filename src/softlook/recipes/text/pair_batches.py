"""Batches of text pairs for translation, with optional BPE dropout."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from softlook.base.errors import DataError
from softlook.data import TextPair
from softlook.recipes.config.schema import TranslationConfig
from softlook.recipes.text.corpus import DISK_THRESHOLD, Corpus, TokenCache, chunk_by_size
from softlook.tokens import TextTokenizer
from softlook.tokens.bpe_dropout import BPEDropout, BPEDropoutEpoch
from softlook.tokens.tokenizer import MAX_TEXT_CHARS
from softlook.train.batching.batches import Batches, DataCursor, LengthBucketedBatches
from softlook.train.batching.collate import Ids, collate_seq2seq

IdPair = tuple[Ids, Ids]
Collate = Callable[[list[Any]], Any]


@dataclass(frozen=True)
class PairBatches:
    """Endless batches of pairs, with their counts."""

    batches: Batches
    count: int
    """Pairs within the length limit."""
    tokens: int
    """Source and target tokens per epoch."""


def build_pair_batches(corpus: Corpus[TextPair], config: TranslationConfig, tokenizer: TextTokenizer) -> PairBatches:
    """Batches of all pairs within the length limit."""
    max_length = config.batch.max_length or 256
    encoded = encode_pairs(corpus.train, tokenizer, max_length)
    cache = TokenCache(corpus, tokenizer, config.run_dir)
    collate: Collate = partial(
        collate_seq2seq,
        bos_id=tokenizer.bos_id,
        eos_id=tokenizer.eos_id,
        pad_id=tokenizer.pad_id,
        pad_to_multiple_of=config.batch.pad_to_multiple_of,
    )
    if config.tokenizer.bpe_dropout:
        return _with_bpe_dropout(encoded, config, cache, collate)
    store = cache.store(((source, target) for _, source, target in encoded), f"pairs {max_length}", rows=2)
    lengths = pair_lengths(store.lengths(0), store.lengths(1))
    max_tokens, seed = config.batch.max_tokens or 2048, config.training.seed
    batches: Batches = LengthBucketedBatches[Any, Any](store, lengths, collate, max_tokens=max_tokens, seed=seed)
    return PairBatches(batches, len(store), len(store.ids))


def encode_pairs(
    train: Iterable[TextPair], tokenizer: TextTokenizer, max_length: int
) -> Iterator[tuple[TextPair, Ids, Ids]]:
    """Pairs with their ids, without those over the length limit."""
    is_empty = True
    for chunk in chunk_by_size(train, lambda pair: len(pair.source) + len(pair.target)):
        chunk = [pair for pair in chunk if max(map(len, pair[:2])) <= MAX_TEXT_CHARS]
        for pair, source, target in zip(chunk, *map(tokenizer.encode, split_sides(chunk)), strict=True):
            if max(len(source), len(target)) < max_length:
                is_empty = False
                yield pair, source, target
    if is_empty:
        raise DataError(f"every pair is longer than {max_length} tokens", help="raise --batch.max-length")


def _with_bpe_dropout(
    encoded: Iterator[tuple[TextPair, Ids, Ids]], config: TranslationConfig, cache: TokenCache, collate: Collate
) -> PairBatches:
    if cache.is_on_disk:
        raise DataError(
            f"tokenizer.bpe_dropout keeps all text in memory and supports up to {DISK_THRESHOLD:,} characters; "
            f"got {cache.corpus.characters:,}",
            why="BPE dropout prevents overfitting on small data, and this data is large",
            help="disable it: --tokenizer.bpe-dropout 0",
        )
    sources, targets, tokens = [], [], 0
    for pair, source, target in encoded:
        sources.append(pair.source)
        targets.append(pair.target)
        tokens += len(source) + len(target)
    return PairBatches(BPEDropoutBatches((sources, targets), cache.tokenizer, config, collate), len(sources), tokens)


class BPEDropoutBatches:
    """Pairs that are segmented anew in each epoch (BPE dropout), reproducibly for a seed and an epoch."""

    def __init__(
        self, sides: Sequence[Sequence[str]], tokenizer: TextTokenizer, config: TranslationConfig, collate: Collate
    ) -> None:
        self.seed, self.max_tokens, self.collate = config.training.seed, config.batch.max_tokens or 2048, collate
        dropout = config.tokenizer.bpe_dropout
        self.source, self.target = (BPEDropout(tokenizer, side, dropout=dropout, seed=self.seed) for side in sides)

    def epoch(self, number: int) -> LengthBucketedBatches[IdPair, Any]:
        source, target = self.source.epoch(number), self.target.epoch(number)
        pairs, lengths = ZippedPairs(source, target), pair_lengths(source.lengths(), target.lengths())
        return LengthBucketedBatches(pairs, lengths, self.collate, max_tokens=self.max_tokens, seed=self.seed)

    def iter_from(self, cursor: DataCursor) -> Iterator[tuple[DataCursor, Any]]:
        while True:
            for after, batch in self.epoch(cursor.epoch).iter_from(cursor):
                yield after, batch
                epoch, cursor = cursor.epoch, after
                if cursor.epoch != epoch:
                    break


class ZippedPairs(Sequence[IdPair]):
    """Source and target ids, combined on access."""

    def __init__(self, source: BPEDropoutEpoch, target: BPEDropoutEpoch) -> None:
        self.source, self.target = source, target

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, number: int, /) -> IdPair:  # pyright: ignore[reportIncompatibleMethodOverride]  (no slices)
        return self.source[number], self.target[number]


def split_sides(pairs: Sequence[TextPair]) -> tuple[list[str], list[str]]:
    """All sources, and all targets."""
    return [pair.source for pair in pairs], [pair.target for pair in pairs]


def pair_lengths(source: Tensor, target: Tensor) -> Tensor:
    """The length of each pair: that of the longer side, with EOS."""
    return torch.maximum(source, target) + 1
