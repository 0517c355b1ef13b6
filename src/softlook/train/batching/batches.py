"""Resumable batch iterators, length buckets, prefetching and the data cursor.

The order of the data is a pure function of (seed, epoch, offset), so a run resumes from a cursor alone.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from softlook.base.errors import TrainingError
from softlook.base.tensors import map_tensors
from softlook.train.rng import make_generator

Item = TypeVar("Item")
Batch = TypeVar("Batch")
BatchOut = TypeVar("BatchOut", covariant=True)
CHUNK = 1 << 20
"""Examples sorted at once."""
END = object()


@dataclass(frozen=True)
class DataCursor:
    """Position in the data: `offset` batches into epoch `epoch`."""

    epoch: int = 0
    offset: int = 0


@runtime_checkable
class Batches(Protocol):
    """Batches that can be iterated from any cursor; each batch comes with the cursor after it.

    Batches are prepared in a background thread: randomness must come from a generator of their own (`make_generator`).
    """

    def iter_from(self, cursor: DataCursor) -> Iterator[tuple[DataCursor, Any]]: ...


class IndexedBatches(Protocol[BatchOut]):
    """The batches of one epoch, each built on access."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> BatchOut: ...


class LengthBucketing:
    """Lengths of examples and the batch boundaries among them, sorted by length: the same in every epoch.

    Computed with tensors, for 100 million examples and more: an order takes four bytes per example, and as many again
    while it is built.

    >>> list(LengthBucketing([3, 9, 3, 8], max_tokens=18).epoch(seed=0, number=0))
    [[2, 0], [3, 1]]
    """

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


class LengthBucketedBatches(Generic[Item, Batch]):
    """Shuffled batches of examples of similar length, at most `max_tokens` tokens each with padding.

    `items` may be in memory or built on access. `length` is a function of an item, or a tensor of all lengths.

    >>> batches = LengthBucketedBatches(["a", "bb", "cc", "d"], len, "".join, max_tokens=2, seed=0)
    >>> for _, (cursor, batch) in zip(range(3), batches.iter_from(DataCursor())):
    ...     print(cursor, batch)
    DataCursor(epoch=0, offset=1) cc
    DataCursor(epoch=0, offset=2) da
    DataCursor(epoch=1, offset=0) bb
    """

    def __init__(
        self,
        items: Sequence[Item],
        length: Callable[[Item], int] | Tensor,
        collate: Callable[[list[Item]], Batch],
        *,
        max_tokens: int,
        seed: int,
    ) -> None:
        if not len(items):
            raise TrainingError("there is nothing to train on: got no examples")
        self.items, self.collate, self.seed = items, collate, seed
        lengths = length if isinstance(length, Tensor) else [length(item) for item in items]
        self.bucketing = LengthBucketing(lengths, max_tokens)

    def epoch(self, number: int) -> BucketedEpoch:
        """The batches of one epoch, as lists of example indices."""
        return self.bucketing.epoch(seed=self.seed, number=number)

    def iter_from(self, cursor: DataCursor) -> Iterator[tuple[DataCursor, Batch]]:
        for after, indices in iterate_epochs(self.epoch, cursor):
            yield after, self.collate([self.items[i] for i in indices])


class ListBatches(Generic[Batch]):
    """A list of batches, repeated in order.

    >>> [batch for _, (_, batch) in zip(range(3), ListBatches(["a", "b"]).iter_from(DataCursor(0, 1)))]
    ['b', 'a', 'b']
    """

    def __init__(self, batches: Sequence[Batch]) -> None:
        if not len(batches):
            raise TrainingError("there is nothing to train on: got no batches")
        self.batches = batches

    def iter_from(self, cursor: DataCursor) -> Iterator[tuple[DataCursor, Batch]]:
        return iterate_epochs(lambda epoch: self.batches, cursor)


class IterableBatches(Generic[Batch]):
    """A re-iterable without random access, such as torch's DataLoader.

    Resuming skips the batches already seen: exact only if every iteration gives the same order.

    >>> [batch for _, (_, batch) in zip(range(2), IterableBatches(range(3)).iter_from(DataCursor(0, 2)))]
    [2, 0]
    """

    def __init__(self, batches: Iterable[Batch]) -> None:
        self.batches = batches

    def iter_from(self, cursor: DataCursor) -> Iterator[tuple[DataCursor, Batch]]:
        epoch, offset = cursor.epoch, cursor.offset
        while True:
            number = 0
            for number, batch in enumerate(self.batches, 1):
                if number > offset:
                    yield DataCursor(epoch, number), batch
            if not number:
                raise TrainingError("there is nothing to train on: got no batches")
            epoch, offset = epoch + 1, 0


class IteratorBatches(Generic[Batch]):
    """A one-shot iterator: the run ends where it ends, and it cannot seek."""

    def __init__(self, batches: Iterator[Batch]) -> None:
        self.batches = batches

    def iter_from(self, cursor: DataCursor) -> Iterator[tuple[DataCursor, Batch]]:
        for number, batch in enumerate(self.batches, cursor.offset + 1):
            yield DataCursor(cursor.epoch, number), batch


class SeededTransform(Generic[Item, Batch]):
    """Applies `transform(batch, generator)` to each batch; the generator depends only on the seed and the cursor.

    The same batch is transformed differently in each epoch, and identically whenever a run resumes.

    >>> flips = SeededTransform(ListBatches([3]), lambda n, rng: torch.randint(2, (n,), generator=rng).tolist(), seed=0)
    >>> drawn = [next(flips.iter_from(DataCursor(epoch, 0)))[1] for epoch in (0, 0, 1)]
    >>> drawn[0] == drawn[1], drawn[0] == drawn[2]
    (True, False)
    """

    def __init__(self, batches: Batches, transform: Callable[[Item, torch.Generator], Batch], *, seed: int) -> None:
        self.batches, self.transform, self.seed = batches, transform, seed

    def iter_from(self, cursor: DataCursor) -> Iterator[tuple[DataCursor, Batch]]:
        for after, batch in self.batches.iter_from(cursor):
            yield after, self.transform(batch, make_generator(self.seed, cursor.epoch, cursor.offset))
            cursor = after


def iterate_epochs(
    epoch: Callable[[int], IndexedBatches[BatchOut]], cursor: DataCursor
) -> Iterator[tuple[DataCursor, BatchOut]]:
    """Iterate over the batches of `epoch(0)`, `epoch(1)`, … without end, starting at `cursor`."""
    number, offset = cursor.epoch, cursor.offset
    while True:
        batches = epoch(number)
        for i in range(offset, len(batches)):
            yield (DataCursor(number, i + 1) if i + 1 < len(batches) else DataCursor(number + 1, 0)), batches[i]
        del batches  # before the next epoch is built: an order may be large
        number, offset = number + 1, 0


def as_batches(batches: Batches | Iterable[Any]) -> Batches:
    """Wrap a list, an iterable or an iterator of batches as `Batches`.

    >>> [type(as_batches(source)).__name__ for source in ([1, 2], {1, 2}, iter([1, 2]))]
    ['ListBatches', 'IterableBatches', 'IteratorBatches']
    """
    if isinstance(batches, Batches):
        return batches
    if isinstance(batches, Sequence):
        return ListBatches(batches)
    if isinstance(batches, Iterator):
        return IteratorBatches(batches)
    if isinstance(batches, Iterable):
        return IterableBatches(batches)
    raise TrainingError(f"expected batches, as a list or any iterable; got {type(batches).__name__}")


def resume_warning(batches: Batches) -> str | None:
    """Why resuming in the middle of these batches may not be exact; None if it is."""
    if isinstance(batches, IteratorBatches):
        return "the batches come from an iterator, which cannot seek: training resumes with whatever it gives next"
    if isinstance(batches, IterableBatches):
        return "the batches are skipped up to the cursor: exact only if their order is the same in every iteration"
    return None


def pinned(source: Iterator[tuple[DataCursor, Batch]], device: torch.device) -> Iterator[tuple[DataCursor, Batch]]:
    """The same batches; for a GPU in pinned memory, from which a copy does not make the host wait."""
    if device.type != "cuda":
        return source
    return (
        (cursor, map_tensors(batch, lambda one: one if one.is_cuda else one.contiguous().pin_memory()))
        for cursor, batch in source
    )


def prefetch(source: Iterator[Item], count: int) -> Generator[Item]:
    """Yield the items of `source` in order, preparing up to `count` of them in a background thread.

    >>> list(prefetch(iter("abc"), 2))
    ['a', 'b', 'c']
    """
    if not count:
        yield from source
        return
    with ThreadPoolExecutor(1, "softlook-prefetch") as pool:
        pending = deque(pool.submit(next, source, END) for _ in range(count))
        try:
            while (item := pending.popleft().result()) is not END:
                pending.append(pool.submit(next, source, END))
                yield item  # pyright: ignore[reportReturnType]  (it is not END)
        finally:
            pool.shutdown(cancel_futures=True)
