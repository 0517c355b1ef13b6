"""Pairs of texts as batches: from memory or from disk, cut always alike or in ever new pieces."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from softlook.base.errors import DataError
from softlook.data import Pair
from softlook.recipes.corpus import Corpus
from softlook.recipes.packing import LARGE, Shelf, in_turn
from softlook.recipes.settings import Translate
from softlook.tokens import TextTokenizer
from softlook.tokens.dropout import Cut, Varied
from softlook.tokens.text import LONGEST
from softlook.train import examples
from softlook.train.batches import Batches, Place, Shuffled, turns
from softlook.train.buckets import Buckets
from softlook.train.examples import Ids, Pairs

Both = tuple[Ids, Ids]
Collate = Callable[[list[Any]], Any]


@dataclass(frozen=True)
class Paired:
    """Batches without end, and what is in them."""

    batches: Batches
    count: int
    """Pairs that are not too long."""
    tokens: int
    """Of both sides, each time through."""


def paired(corpus: Corpus[Pair], settings: Translate, tokenizer: TextTokenizer) -> Paired:
    """All pairs that are not too long, as batches."""
    longest = settings.batch.longest or 256
    fit = fitting(corpus.train, tokenizer, longest)
    shelf = Shelf(corpus, tokenizer, settings.run)
    ends = {"begin": tokenizer.begin, "end": tokenizer.end, "pad": tokenizer.pad}
    collate = partial(examples.pairs, **ends, multiple=settings.batch.multiple)
    if settings.tokens.dropout:
        return _retold(fit, settings, shelf, collate)
    store = shelf.store(((one, other) for _, one, other in fit), f"pairs below {longest}", rows=2)
    lengths = length_of(store.lengths(0), store.lengths(1))
    most, seed = settings.batch.tokens or 2048, settings.training.seed
    return Paired(Shuffled(store, lengths, collate, most=most, seed=seed), len(store), len(store.ids))


def fitting(train: Iterable[Pair], tokenizer: TextTokenizer, longest: int) -> Iterator[tuple[Pair, Ids, Ids]]:
    """Pairs with their ids, but for those that are too long."""
    is_found = False
    for some in in_turn(train, lambda pair: len(pair.source) + len(pair.target)):
        some = [pair for pair in some if max(map(len, pair[:2])) <= LONGEST]  # those are longer by far
        for pair, one, other in zip(some, *map(tokenizer.encode, sides(some)), strict=True):
            if max(len(one), len(other)) < longest:
                is_found = True
                yield pair, one, other
    if not is_found:
        raise DataError(f"every pair is longer than {longest} tokens", help="raise --batch.longest")


def _retold(
    fit: Iterator[tuple[Pair, Ids, Ids]], settings: Translate, shelf: Shelf, collate: Callable[[list[Any]], Pairs]
) -> Paired:
    if shelf.is_large:
        raise DataError(
            f"tokens.dropout keeps every word in memory, and goes up to {LARGE:,} characters of text; "
            f"here are {shelf.corpus.characters:,}",
            why="it keeps few examples from being learned by heart, and these are many",
            help="leave it out: --tokens.dropout 0",
        )
    texts: tuple[list[str], list[str]] = ([], [])
    tokens = 0
    for pair, one, other in fit:
        texts[0].append(pair.source)
        texts[1].append(pair.target)
        tokens += len(one) + len(other)
    return Paired(Retold(texts, shelf.tokenizer, settings, collate), len(texts[0]), tokens)


class Retold:
    """Pairs in ever new pieces: BPE dropout. Pieces and order depend on the seed and the epoch alone."""

    def __init__(
        self, texts: Sequence[Sequence[str]], tokenizer: TextTokenizer, settings: Translate, collate: Collate
    ) -> None:
        self.seed, self.most, self.collate = settings.training.seed, settings.batch.tokens or 2048, collate
        one, other = (Varied(tokenizer, side, dropout=settings.tokens.dropout, seed=self.seed) for side in texts)
        self.sides = one, other

    def epoch(self, number: int) -> "Turned":
        one, other = (side.epoch(number) for side in self.sides)
        lengths = length_of(one.lengths(), other.lengths())
        shuffled = Shuffled(Beside(one, other), lengths, self.collate, most=self.most, seed=self.seed)
        return Turned(shuffled, shuffled.epoch(number))

    def start(self, place: Place) -> Iterator[tuple[Place, Any]]:
        return turns(self.epoch, place)


class Beside(Sequence[Both]):
    """Two sides of pairs, each put together when it is asked for."""

    def __init__(self, one: Cut, other: Cut) -> None:
        self.one, self.other = one, other

    def __len__(self) -> int:
        return len(self.one)

    def __getitem__(self, number: int, /) -> Both:  # pyright: ignore[reportIncompatibleMethodOverride]  (no slices)
        return self.one[number], self.other[number]


class Turned:
    """One time through."""

    def __init__(self, shuffled: Shuffled[Both, Any], batches: Buckets) -> None:
        self.shuffled, self.batches = shuffled, batches

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, number: int, /) -> Any:
        return self.shuffled.collate([self.shuffled.items[i] for i in self.batches[number]])


def sides(pairs: Sequence[Pair]) -> tuple[list[str], list[str]]:
    """All sources, and all targets."""
    return [pair.source for pair in pairs], [pair.target for pair in pairs]


def length_of(one: Tensor, other: Tensor) -> Tensor:
    """How long pairs are, with a sign at the end of the longer side."""
    return torch.maximum(one, other) + 1
