"""Resumable batch iterators and the data cursor.

The order of the data is a pure function of (seed, epoch, offset), so a run resumes from a cursor alone.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from softlook.base.errors import TrainingError
from softlook.train.batching.length_buckets import BucketedEpoch, LengthBucketing
from softlook.train.rng import make_generator

Item = TypeVar("Item")
Batch = TypeVar("Batch")
BatchOut = TypeVar("BatchOut", covariant=True)


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
