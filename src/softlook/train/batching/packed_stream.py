"""Packed rows of documents from a token store larger than memory."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from softlook.losses import IGNORE_INDEX
from softlook.train.batching.batches import DataCursor, iterate_epochs
from softlook.train.batching.collate import PackedBatch
from softlook.train.batching.token_store import TokenStore
from softlook.train.rng import derive_seed

NO_DOCUMENT = -1
"""The document id of padding."""
EVALUATION_OVERLAP = 8
"""One part in so many of a row, in an evaluation, is context only."""
FEISTEL_ROUNDS = 4
MULTIPLIER, MASK_64_BITS = 0x9E3779B97F4A7C15, (1 << 64) - 1


@dataclass(frozen=True)
class TokenizedDocuments:
    """The ids of all documents in one tensor, and where each document starts. Memory-mapped when on disk."""

    ids: Tensor
    starts: Tensor

    @staticmethod
    def from_store(store: TokenStore) -> "TokenizedDocuments":
        """Every row of a store as a document."""
        return TokenizedDocuments(*store.tensors())

    def pack(self, begins: list[int], context: int) -> PackedBatch:
        """Rows of `context` ids starting at each of `begins`; positions outside the data are padding.

        >>> TokenizedDocuments(torch.tensor([5, 6, 7, 8]), torch.tensor([0, 3])).pack([0], 4)
        PackedBatch(ids=tensor([[5, 6, 7, 8]]), labels=tensor([[   6,    7, -100, -100]]),
             document_ids=tensor([[0, 0, 0, 1]]), positions=tensor([[0, 1, 2, 0]]))
        """
        count = len(self.ids)
        start_B1 = torch.tensor(begins)[:, None]
        index_BT = start_B1 + torch.arange(context + 1)  # one more: the label of the last token
        valid_BT = (index_BT >= 0) & (index_BT < count)
        ids_BT = torch.stack([self._read(begin, context + 1) for begin in begins])
        document_BT = torch.searchsorted(self.starts, index_BT.clamp(0, count - 1), right=True) - 1
        begin_BT = self.starts[document_BT].maximum(start_B1)  # positions of a truncated document count from the cut
        document_BT = document_BT.masked_fill(~valid_BT, NO_DOCUMENT)
        has_label_BT = (document_BT[:, 1:] == document_BT[:, :-1]) & valid_BT[:, 1:]
        return PackedBatch(
            ids_BT[:, :-1],
            ids_BT[:, 1:].masked_fill(~has_label_BT, IGNORE_INDEX),
            document_BT[:, :-1],
            (index_BT - begin_BT).masked_fill(~valid_BT, 0)[:, :-1],
        )

    def _read(self, begin: int, length: int) -> Tensor:
        row = torch.zeros(length, dtype=torch.long)
        first, last = max(begin, 0), min(begin + length, len(self.ids))
        row[first - begin : last - begin] = self.ids[first:last].long()
        return row


class PackedStream:
    """Endless batches of packed rows. Every id is read once per epoch; the row boundaries shift between epochs."""

    def __init__(self, tokens: TokenizedDocuments, *, context: int, batch_size: int, seed: int) -> None:
        self.tokens, self.context, self.batch_size, self.seed = tokens, context, batch_size, seed

    def epoch(self, number: int) -> "PackedEpoch":
        """The batches of one epoch."""
        return PackedEpoch(self, number)

    def iter_from(self, cursor: DataCursor) -> Iterator[tuple[DataCursor, PackedBatch]]:
        return iterate_epochs(self.epoch, cursor)

    def iter_in_order(self) -> Iterator[PackedBatch]:
        """One pass in order, for evaluation. Rows overlap, so that few tokens are predicted from little context."""
        overlap = self.context // EVALUATION_OVERLAP
        begins = range(0, max(len(self.tokens.ids) - overlap, 1), self.context - overlap)
        for i in range(0, len(begins), self.batch_size):
            batch = self.tokens.pack(list(begins[i : i + self.batch_size]), self.context)
            batch.labels[0 if i else 1 :, :overlap] = IGNORE_INDEX  # predicted in the row before
            yield batch


class PackedEpoch:
    """One epoch of a stream, as batches read on access."""

    def __init__(self, stream: PackedStream, number: int) -> None:
        self.stream = stream
        self.shift = derive_seed(stream.seed, number) % stream.context
        count = -(-(len(stream.tokens.ids) + self.shift) // stream.context)
        self.order = LazyPermutation(count, stream.seed, number)

    def __len__(self) -> int:
        return -(-len(self.order) // self.stream.batch_size)

    def __getitem__(self, index: int) -> PackedBatch:
        first = index * self.stream.batch_size
        rows = range(first, min(first + self.stream.batch_size, len(self.order)))
        begins = [self.order[i] * self.stream.context - self.shift for i in rows]
        return self.stream.tokens.pack(begins, self.stream.context)


class LazyPermutation:
    """A pseudo-random permutation of `range(size)` that depends on `keys` alone, computed per index without memory.

    >>> sorted(LazyPermutation(5, 0)[i] for i in range(5))
    [0, 1, 2, 3, 4]
    """

    def __init__(self, size: int, *keys: int) -> None:
        self.size = size
        self.half_bits = max((max(size - 1, 1).bit_length() + 1) // 2, 1)
        self.round_keys = [derive_seed(*keys, number) for number in range(FEISTEL_ROUNDS)]

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        if not 0 <= index < self.size:
            raise IndexError(index)
        number = self._permute(index)
        while number >= self.size:  # cycle walking: the permutation of a power of two leads back into the range
            number = self._permute(number)
        return number

    def _permute(self, number: int) -> int:
        """A Feistel network: a bijection whatever the round function."""
        low_bits = (1 << self.half_bits) - 1
        left, right = number >> self.half_bits, number & low_bits
        for key in self.round_keys:
            mixed = ((right ^ key) * MULTIPLIER) & MASK_64_BITS
            mixed = ((mixed ^ (mixed >> 29)) * MULTIPLIER) & MASK_64_BITS
            left, right = right, left ^ ((mixed >> 32) & low_bits)
        return left << self.half_bits | right
