"""Length-bucketed batches in shuffled order.

Computed with tensors, for 100 million examples and more: an order takes four bytes per example, and as many again while
it is built.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from softlook.train.rng import make_generator

CHUNK = 1 << 20
"""Examples sorted at once."""


class LengthBucketing:
    """Lengths of examples and the batch boundaries among them, sorted by length: the same in every epoch."""

    def __init__(self, lengths: Sequence[int] | Tensor, max_tokens: int) -> None:
        all_lengths = lengths if isinstance(lengths, Tensor) else torch.tensor(lengths, dtype=torch.long)
        fits_int16 = len(all_lengths) and int(all_lengths.max()) < 1 << 15
        self.lengths = all_lengths.to(torch.int16) if fits_int16 else all_lengths
        self.unique_lengths = torch.unique(torch.cat([torch.unique(chunk) for chunk in self.lengths.split(CHUNK)]))
        counts = torch.zeros(len(self.unique_lengths), dtype=torch.long)
        for chunk in self.lengths.split(CHUNK):
            counts += torch.bincount(torch.searchsorted(self.unique_lengths, chunk), minlength=len(counts))
        self.offsets = counts.cumsum(0) - counts
        ends = batch_ends(self.unique_lengths.tolist(), counts.tolist(), max_tokens)
        self.boundaries = torch.tensor([0, *ends])

    def epoch(self, *, seed: int, number: int) -> "BucketedEpoch":
        """The batches of one epoch, shuffled by `seed` and `number`."""
        generator, count = make_generator(seed, number), len(self.lengths)
        dtype = torch.int32 if count < 1 << 31 else torch.long
        # Shuffled first and sorted after: examples of one length come in a different order in each epoch.
        order = self._sort(torch.randperm(count, generator=generator, dtype=dtype))
        return BucketedEpoch(order, self.boundaries, torch.randperm(len(self.boundaries) - 1, generator=generator))

    def _sort(self, shuffled: Tensor) -> Tensor:
        """Stable counting sort by length, one chunk at a time."""
        result, cursor = torch.empty_like(shuffled), self.offsets.clone()
        for chunk in shuffled.split(CHUNK):
            bucket, within = torch.searchsorted(self.unique_lengths, self.lengths[chunk.long()]).sort(stable=True)
            counts = torch.bincount(bucket, minlength=len(cursor))
            rank = torch.arange(len(chunk)) - (counts.cumsum(0) - counts)[bucket]
            result[cursor[bucket] + rank] = chunk[within]
            cursor += counts
        return result


class BucketedEpoch(Sequence[list[int]]):
    """The batches of one epoch: lists of example indices, each built on access."""

    def __init__(self, order: Tensor, boundaries: Tensor, batch_order: Tensor) -> None:
        self.order, self.boundaries, self.batch_order = order, boundaries, batch_order

    def __len__(self) -> int:
        return len(self.batch_order)

    def __getitem__(self, index: int, /) -> list[int]:  # pyright: ignore[reportIncompatibleMethodOverride]  (no slices)
        first, last = self.boundaries[self.batch_order[index] :][:2].tolist()
        return self.order[first:last].tolist()


def batch_ends(lengths: Sequence[int], counts: Sequence[int], max_tokens: int) -> list[int]:
    """Where each batch ends among examples sorted by length, `counts[i]` of them `lengths[i]` long.

    An example longer than `max_tokens` gets a batch of its own.

    >>> batch_ends([3, 8, 30], [5, 1, 2], max_tokens=12)
    [4, 5, 6, 7, 8]
    """
    ends, first = [], 0
    edges = [0]
    for count in counts:
        edges.append(edges[-1] + count)
    for length, (start, last) in zip(lengths, pairwise(edges), strict=True):
        capacity = max_tokens // length if length > 0 else edges[-1]
        while (end := max(first + capacity, first + 1, start)) < last:
            ends.append(end)
            first = start = end
    return [*ends, edges[-1]] if edges[-1] else ends


def bucket_by_length(lengths: Sequence[int] | Tensor, max_tokens: int, *, seed: int, epoch: int) -> BucketedEpoch:
    """Shuffled batches of example indices, similar in length, each of at most `max_tokens` tokens with padding.

    The order is a pure function of seed and epoch. An example longer than `max_tokens` gets a batch of its own.

    >>> list(bucket_by_length([3, 9, 3, 8], max_tokens=18, seed=0, epoch=0))
    [[2, 0], [3, 1]]
    """
    return LengthBucketing(lengths, max_tokens).epoch(seed=seed, number=epoch)
