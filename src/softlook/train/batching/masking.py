"""Token masking and sentence pairs for masked language models (BERT).

Every function takes its random generator, so that a data cursor always gives the same masks (see `SeededTransform`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from softlook.base.errors import ConfigError
from softlook.losses import IGNORE_INDEX
from softlook.train.batching.collate import Ids, JoinFn, MaskedLMBatch, collate_classification
from softlook.train.batching.token_store import TokenStore

IS_NEXT, NOT_NEXT = 0, 1
"""Next-sentence labels."""
SentencePosition = tuple[int, int]
"""(document, sentence)."""


@dataclass(frozen=True)
class MaskingConfig:
    """How tokens are masked."""

    mask_id: int
    """The id of the mask token."""
    vocab_size: int
    special_ids: tuple[int, ...]
    """Special tokens: never masked, never used as a replacement."""
    mask_prob: float = 0.15
    """Share of tokens to predict: 80 % become the mask token, 10 % a random token, 10 % stay."""

    def __post_init__(self) -> None:
        if not 0 < self.mask_prob <= 1:
            raise ConfigError(f"mask_prob: expected more than 0 and at most 1, got {self.mask_prob}")

    def word_ids(self) -> Int[Tensor, " V"]:
        """All ids that are not special tokens."""
        ids = torch.arange(self.vocab_size)
        return ids[~torch.isin(ids, torch.tensor(self.special_ids))]


def mask_tokens(
    ids: Int[Tensor, "B T"], padding_mask: Bool[Tensor, "B T"], config: MaskingConfig, generator: torch.Generator
) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B T"]]:
    """Masked ids and labels. At least one token is masked in every row that has one.

    >>> ids = torch.tensor([[1, 7, 8, 9]])
    >>> config = MaskingConfig(mask_id=4, vocab_size=10, special_ids=(0, 1, 2, 3, 4), mask_prob=0.5)
    >>> mask_tokens(ids, ids > 0, config, torch.Generator().manual_seed(2))
    (tensor([[1, 4, 8, 4]]), tensor([[-100,    7, -100,    9]]))
    """
    maskable = padding_mask & ~torch.isin(ids, torch.tensor(config.special_ids))
    uniforms = torch.rand(ids.shape, generator=generator).masked_fill(~maskable, torch.inf)
    selected = maskable & ((uniforms < config.mask_prob) | (uniforms == uniforms.amin(1, keepdim=True)))
    action = torch.rand(ids.shape, generator=generator)
    replacements = config.word_ids()
    replacements = replacements[torch.randint(len(replacements), ids.shape, generator=generator)]
    masked = torch.where(selected & (action < 0.8), config.mask_id, ids)
    masked = torch.where(selected & (action >= 0.8) & (action < 0.9), replacements, masked)
    return masked, ids.masked_fill(~selected, IGNORE_INDEX)


def collate_masked_lm(
    examples: Sequence[tuple[Ids, Ids, int]],
    generator: torch.Generator,
    *,
    masking: MaskingConfig,
    join: JoinFn,
    max_length: int,
    pad_id: int = 0,
) -> MaskedLMBatch:
    """Masked batch of (first text, second text, next-sentence label); the label is IGNORE_INDEX without a second text.

    >>> masking = MaskingConfig(mask_id=4, vocab_size=10, special_ids=(0, 1, 2, 3, 4))
    >>> join = lambda first, second: ([1, *first, 2], [0] * (len(first) + 2))
    >>> examples, generator = [([7, 8], [], IGNORE_INDEX)], torch.Generator().manual_seed(0)
    >>> batch = collate_masked_lm(examples, generator, masking=masking, join=join, max_length=8)
    >>> batch.ids, batch.labels
    (tensor([[1, 7, 4, 2]]), tensor([[-100, -100,    8, -100]]))
    """
    texts = collate_classification(examples, join=join, max_length=max_length, pad_id=pad_id)
    ids, labels = mask_tokens(texts.ids, texts.padding_mask, masking, generator)
    return MaskedLMBatch(ids, texts.padding_mask, texts.token_types, labels, texts.labels)


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
    """(document, sentence) of every sentence that has a successor in its document.

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
