"""In what order examples come, and where one has got to: (seed, epoch, offset), and nothing else to remember."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from softlook.base.errors import TrainingError
from softlook.train.buckets import Bucketing, Buckets
from softlook.train.buckets import buckets as buckets
from softlook.train.chance import chance as chance
from softlook.train.chance import seed_of as seed_of

Item = TypeVar("Item")
Batch = TypeVar("Batch")
Made = TypeVar("Made", covariant=True)


@dataclass(frozen=True)
class Place:
    """Where in the data one is: so many batches into so many-th time through."""

    epoch: int = 0
    offset: int = 0


@runtime_checkable
class Batches(Protocol):
    """Batches which can be entered at any place; each comes with the place after it.

    They are made in the background: whatever chance they need, they take from dice of their own (`chance`).
    """

    def start(self, place: Place) -> Iterator[tuple[Place, Any]]: ...


class Turn(Protocol[Made]):
    """The batches of one time through: so many, each made when it is asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int, /) -> Made: ...


class Shuffled(Generic[Item, Batch]):
    """Batches without end from examples, which are in memory or are made when they are asked for.

    `length` says how long an example is; or it is how long each of them is, where that is known.

    >>> batches = Shuffled(["a", "bb", "cc", "d"], len, "".join, most=2, seed=0)
    >>> [batch for _, batch in zip(range(3), batches.start(Place()))]
    [(Place(epoch=0, offset=1), 'cc'), (Place(epoch=0, offset=2), 'da'), (Place(epoch=1, offset=0), 'bb')]
    """

    def __init__(
        self,
        items: Sequence[Item],
        length: Callable[[Item], int] | Tensor,
        collate: Callable[[list[Item]], Batch],
        *,
        most: int,
        seed: int,
    ) -> None:
        if not len(items):
            raise TrainingError("there is nothing to learn from: no examples came")
        self.items, self.collate, self.seed = items, collate, seed
        self.bucketing = Bucketing(length if isinstance(length, Tensor) else [length(item) for item in items], most)

    def epoch(self, number: int) -> Buckets:
        """The batches of one time through, as example numbers."""
        return self.bucketing.epoch(seed=self.seed, number=number)

    def start(self, place: Place) -> Iterator[tuple[Place, Batch]]:
        """From `place` on: each batch with the place after it."""
        for after, numbers in turns(self.epoch, place):
            yield after, self.collate([self.items[i] for i in numbers])


class Listed(Generic[Batch]):
    """A list of batches, from the first to the last and round again.

    >>> [batch for _, batch in zip(range(3), Listed(["a", "b"]).start(Place(0, 1)))]
    [(Place(epoch=1, offset=0), 'b'), (Place(epoch=1, offset=1), 'a'), (Place(epoch=2, offset=0), 'b')]
    """

    def __init__(self, batches: Sequence[Batch]) -> None:
        if not len(batches):
            raise TrainingError("there is nothing to learn from: no batches came")
        self.batches = batches

    def start(self, place: Place) -> Iterator[tuple[Place, Batch]]:
        return turns(lambda epoch: self.batches, place)


class Repeated(Generic[Batch]):
    """What can be gone through again and again but not entered in the middle, as torch's DataLoader.

    Going on passes over what was seen: exact if the batches come in the same order each time one goes through.

    >>> [batch for _, batch in zip(range(2), Repeated(range(3)).start(Place(0, 2)))]
    [(Place(epoch=0, offset=3), 2), (Place(epoch=1, offset=1), 0)]
    """

    def __init__(self, batches: Iterable[Batch]) -> None:
        self.batches = batches

    def start(self, place: Place) -> Iterator[tuple[Place, Batch]]:
        epoch, offset = place.epoch, place.offset
        while True:
            number = 0
            for number, batch in enumerate(self.batches, 1):
                if number > offset:
                    yield Place(epoch, number), batch
            if not number:
                raise TrainingError("there is nothing to learn from: no batches came")
            epoch, offset = epoch + 1, 0


class Passing(Generic[Batch]):
    """Batches that pass by once: where they end the run ends, and nobody can be sent back to a place among them."""

    def __init__(self, batches: Iterator[Batch]) -> None:
        self.batches = batches

    def start(self, place: Place) -> Iterator[tuple[Place, Batch]]:
        for number, batch in enumerate(self.batches, place.offset + 1):
            yield Place(place.epoch, number), batch


class Rolled(Generic[Item, Batch]):
    """Batches that chance has a hand in: `change(batch, dice)`, the dice depending on the seed and the place alone.

    So the same batch is changed otherwise each time through, and alike whenever it is reached.

    >>> flips = Rolled(Listed([3]), lambda n, dice: torch.randint(2, (n,), generator=dice).tolist(), seed=0)
    >>> twice = [next(flips.start(Place(epoch, 0)))[1] for epoch in (0, 0, 1)]
    >>> twice[0] == twice[1], twice[0] == twice[2]
    (True, False)
    """

    def __init__(self, batches: Batches, change: Callable[[Item, torch.Generator], Batch], *, seed: int) -> None:
        self.batches, self.change, self.seed = batches, change, seed

    def start(self, place: Place) -> Iterator[tuple[Place, Batch]]:
        for after, batch in self.batches.start(place):
            yield after, self.change(batch, chance(self.seed, place.epoch, place.offset))
            place = after


def turns(epoch: Callable[[int], Turn[Made]], place: Place) -> Iterator[tuple[Place, Made]]:
    """Time after time through what `epoch` gives for each, from `place` on."""
    number, offset = place.epoch, place.offset
    while True:
        batches = epoch(number)
        for i in range(offset, len(batches)):
            yield (Place(number, i + 1) if i + 1 < len(batches) else Place(number + 1, 0)), batches[i]
        del batches  # before the next ones are made: an order may be large
        number, offset = number + 1, 0


def as_batches(batches: Batches | Iterable[Any]) -> Batches:
    """Whatever gives batches, as something with places in it.

    >>> [type(as_batches(made)).__name__ for made in ([1, 2], {1, 2}, iter([1, 2]))]
    ['Listed', 'Repeated', 'Passing']
    """
    if isinstance(batches, Batches):
        return batches
    if isinstance(batches, Sequence):
        return Listed(batches)
    if isinstance(batches, Iterator):
        return Passing(batches)
    if isinstance(batches, Iterable):
        return Repeated(batches)
    raise TrainingError(
        f"fit wants batches: a list of them, or anything that gives them; {type(batches).__name__} came"
    )


def doubt(batches: Batches) -> str | None:
    """Why going on in the middle of these batches may not be exact, if so."""
    if isinstance(batches, Passing):
        return "these batches come from an iterator, which cannot be sent back: going on takes whatever it gives next"
    if isinstance(batches, Repeated):
        return "these batches are passed over from the start up to the place: exact only if their order stays the same"
    return None
