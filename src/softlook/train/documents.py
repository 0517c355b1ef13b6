"""Documents as lists of sentences, from a store: nothing but what is asked for is in memory."""

from collections.abc import Sequence
from typing import overload

import torch
from torch import Tensor

from softlook.train.store import Store

Place = tuple[int, int]


class Documents(Sequence[Sequence[list[int]]]):
    """Sentences of a store, of which some begin a document: those whose second row is not empty.

    >>> from softlook.train.store import gathered
    >>> documents = Documents(gathered([([5], [1]), ([6, 7], []), ([8], [1])], vocab=10, rows=2))
    >>> len(documents), list(documents[0]), list(documents[1])
    (2, [[5], [6, 7]], [[8]])
    """

    def __init__(self, sentences: Store) -> None:
        self.sentences = sentences
        self.begins = sentences.lengths(1) > 0
        first = self.begins.nonzero()[:, 0].to(torch.int32 if len(sentences) < 1 << 31 else torch.long)
        self.firsts = torch.cat([first, first.new_tensor([len(sentences)])])
        """The first sentence of each document; and behind them, how many sentences there are."""

    def __len__(self) -> int:
        return len(self.firsts) - 1

    def __getitem__(self, number: int, /) -> "Document":  # pyright: ignore[reportIncompatibleMethodOverride]  (no slices)
        number = range(len(self))[number]
        return Document(self.sentences, range(*self.firsts[number : number + 2].tolist()))


class Document(Sequence[list[int]]):
    """The sentences of one document."""

    def __init__(self, sentences: Store, numbers: range) -> None:
        self.sentences, self.numbers = sentences, numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, number: int, /) -> list[int]:  # pyright: ignore[reportIncompatibleMethodOverride]  (no slices)
        return self.sentences[self.numbers[number]][0]


class Neighbours(Sequence[Place]):
    """Where there is a sentence with another one behind it: (document, sentence), as `masking.neighbours` lists them.

    >>> from softlook.train.store import gathered
    >>> documents = Documents(gathered([([5], [1]), ([6, 7], []), ([8], [1])], vocab=10, rows=2))
    >>> Neighbours(documents)[:], Neighbours(documents).lengths()
    ([(0, 0)], tensor([3], dtype=torch.int32))
    """

    def __init__(self, documents: Documents) -> None:
        self.documents = documents
        # A document of n sentences has n - 1 such places: so many lie before it.
        self.before = documents.firsts - torch.arange(len(documents.firsts), dtype=documents.firsts.dtype)

    def __len__(self) -> int:
        return int(self.before[-1])

    @overload
    def __getitem__(self, number: int, /) -> Place: ...
    @overload
    def __getitem__(self, number: slice, /) -> list[Place]: ...
    def __getitem__(self, number: int | slice, /) -> Place | list[Place]:
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        number = range(len(self))[number]
        document = int(torch.searchsorted(self.before, number, right=True)) - 1
        return document, number - int(self.before[document])

    def lengths(self) -> Tensor:
        """How long a sentence and the one behind it are together."""
        lengths, follows = self.documents.sentences.lengths(0), ~self.documents.begins[1:]
        return (lengths[:-1] + lengths[1:])[follows]
