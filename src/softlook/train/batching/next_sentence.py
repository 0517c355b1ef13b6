"""Sentence pairs for next-sentence prediction (BERT)."""

from collections.abc import Sequence
from typing import overload

import torch
from torch import Tensor

from softlook.base.errors import ConfigError
from softlook.train.batching.collate import Ids
from softlook.train.batching.token_store import TokenStore

IS_NEXT, NOT_NEXT = 0, 1
"""Next-sentence labels."""
SentencePosition = tuple[int, int]
"""(document, sentence)."""


class DocumentStore(Sequence[Sequence[list[int]]]):
    """Documents as sequences of sentences, read from a token store on access.

    A sentence whose second row is not empty starts a new document.

    >>> from softlook.train.batching.token_store import store_in_memory
    >>> documents = DocumentStore(store_in_memory([([5], [1]), ([6, 7], []), ([8], [1])], vocab_size=10, rows=2))
    >>> len(documents), list(documents[0]), list(documents[1])
    (2, [[5], [6, 7]], [[8]])
    """

    def __init__(self, sentences: TokenStore) -> None:
        self.sentences = sentences
        self.starts_document = sentences.lengths(1) > 0
        dtype = torch.int32 if len(sentences) < 1 << 31 else torch.long
        first = self.starts_document.nonzero()[:, 0].to(dtype)
        self.offsets = torch.cat([first, first.new_tensor([len(sentences)])])
        """The first sentence of each document, then the number of sentences."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int, /) -> "DocumentView":  # pyright: ignore[reportIncompatibleMethodOverride]  (no slices)
        index = range(len(self))[index]
        return DocumentView(self.sentences, range(*self.offsets[index : index + 2].tolist()))


class DocumentView(Sequence[list[int]]):
    """The sentences of one document."""

    def __init__(self, sentences: TokenStore, indices: range) -> None:
        self.sentences, self.indices = sentences, indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int, /) -> list[int]:  # pyright: ignore[reportIncompatibleMethodOverride]  (no slices)
        return self.sentences[self.indices[index]][0]


class SentencePairIndex(Sequence[SentencePosition]):
    """Positions of sentences that have a successor in their document, as `sentence_pair_positions` lists them.

    >>> from softlook.train.batching.token_store import store_in_memory
    >>> documents = DocumentStore(store_in_memory([([5], [1]), ([6, 7], []), ([8], [1])], vocab_size=10, rows=2))
    >>> SentencePairIndex(documents)[:], SentencePairIndex(documents).lengths()
    ([(0, 0)], tensor([3], dtype=torch.int32))
    """

    def __init__(self, documents: DocumentStore) -> None:
        self.documents = documents
        # A document of n sentences has n - 1 pairs; this is the number of pairs before each document.
        self.pairs_before = documents.offsets - torch.arange(len(documents.offsets), dtype=documents.offsets.dtype)

    def __len__(self) -> int:
        return int(self.pairs_before[-1])

    @overload
    def __getitem__(self, index: int, /) -> SentencePosition: ...
    @overload
    def __getitem__(self, index: slice, /) -> list[SentencePosition]: ...
    def __getitem__(self, index: int | slice, /) -> SentencePosition | list[SentencePosition]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        document = int(torch.searchsorted(self.pairs_before, index, right=True)) - 1
        return document, index - int(self.pairs_before[document])

    def lengths(self) -> Tensor:
        """Tokens of each sentence pair."""
        lengths, has_previous = self.documents.sentences.lengths(0), ~self.documents.starts_document[1:]
        return (lengths[:-1] + lengths[1:])[has_previous]


def sentence_pair_positions(documents: Sequence[Sequence[Ids]]) -> list[SentencePosition]:
    """(document, sentence) of every sentence that has a successor.

    >>> sentence_pair_positions([[[5], [6], [7]], [[8]]])
    [(0, 0), (0, 1)]
    """
    return [(i, j) for i, document in enumerate(documents) for j in range(len(document) - 1)]


def sample_sentence_pairs(
    documents: Sequence[Sequence[Ids]],
    positions: Sequence[SentencePosition],
    generator: torch.Generator,
    *,
    candidates: Sequence[int] | None = None,
) -> list[tuple[Ids, Ids, int]]:
    """Each sentence with its successor or, with probability 1/2, with a random sentence of another document.

    `candidates` are the documents that are not empty, if known: finding them reads every document.

    >>> documents = [[[5], [6]], [[8]]]
    >>> sample_sentence_pairs(documents, [(0, 0), (0, 0), (0, 0)], torch.Generator().manual_seed(0))
    [([5], [6], 0), ([5], [8], 1), ([5], [6], 0)]
    """
    candidates = candidates or [i for i, document in enumerate(documents) if document]
    if len(candidates) < 2:
        raise ConfigError("next-sentence prediction needs at least two documents to sample negatives from, got one")
    return [_sample_pair(documents, candidates, position, generator) for position in positions]


def _sample_pair(
    documents: Sequence[Sequence[Ids]],
    candidates: Sequence[int],
    position: SentencePosition,
    generator: torch.Generator,
) -> tuple[Ids, Ids, int]:
    document, sentence = position
    if torch.rand((), generator=generator) < 0.5:
        return documents[document][sentence], documents[document][sentence + 1], IS_NEXT
    skip = int(torch.randint(1, len(candidates), (), generator=generator))
    other = documents[candidates[(candidates.index(document) + skip) % len(candidates)]]
    return documents[document][sentence], other[int(torch.randint(len(other), (), generator=generator))], NOT_NEXT
