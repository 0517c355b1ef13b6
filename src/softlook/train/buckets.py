"""Examples alike in length in one batch, in shuffled order: worked out with arrays, so that a hundred million may come.

An order takes four bytes for each example while it is used, and as many again while it is made.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from softlook.train.chance import chance

PORTION = 1 << 20
"""Examples that are sorted at once."""


class Bucketing:
    """How long examples are, and how many of one length there are: the same in every epoch."""

    def __init__(self, lengths: Sequence[int] | Tensor, most: int) -> None:
        told = lengths if isinstance(lengths, Tensor) else torch.tensor(lengths, dtype=torch.long)
        self.lengths = told.to(torch.int16) if len(told) and int(told.max()) < 1 << 15 else told
        found = [torch.unique(some) for some in self.lengths.split(PORTION)]
        self.kinds = torch.unique(torch.cat(found))
        """The different lengths there are, the shortest first."""
        counts = torch.zeros(len(self.kinds), dtype=torch.long)
        for some in self.lengths.split(PORTION):
            counts += torch.bincount(torch.searchsorted(self.kinds, some), minlength=len(counts))
        self.firsts = counts.cumsum(0) - counts
        self.edges = torch.tensor([0, *ends_of(self.kinds.tolist(), counts.tolist(), most)])

    def epoch(self, *, seed: int, number: int) -> "Buckets":
        """The batches of one time through."""
        dice = chance(seed, number)
        count = len(self.lengths)
        shuffled = torch.randperm(count, generator=dice, dtype=torch.int32 if count < 1 << 31 else torch.long)
        # Shuffled first and sorted after: examples of one length come in another order each time.
        order = self._sorted(shuffled)
        return Buckets(order, self.edges, torch.randperm(len(self.edges) - 1, generator=dice))

    def _sorted(self, shuffled: Tensor) -> Tensor:
        """Sorted by length, and otherwise as they were: each portion is laid behind what is there of its lengths."""
        made, place = torch.empty_like(shuffled), self.firsts.clone()
        for some in shuffled.split(PORTION):
            kind, within = torch.searchsorted(self.kinds, self.lengths[some.long()]).sort(stable=True)
            counts = torch.bincount(kind, minlength=len(place))
            rank = torch.arange(len(some)) - (counts.cumsum(0) - counts)[kind]
            made[place[kind] + rank] = some[within]
            place += counts
        return made


class Buckets(Sequence[list[int]]):
    """Batches of example numbers, each written out when it is asked for."""

    def __init__(self, order: Tensor, edges: Tensor, turn: Tensor) -> None:
        self.order, self.edges, self.turn = order, edges, turn

    def __len__(self) -> int:
        return len(self.turn)

    def __getitem__(self, place: int, /) -> list[int]:  # pyright: ignore[reportIncompatibleMethodOverride]  (no slices)
        first, last = self.edges[self.turn[place] :][:2].tolist()
        return self.order[first:last].tolist()


def ends_of(kinds: Sequence[int], counts: Sequence[int], most: int) -> list[int]:
    """Where each batch ends, when examples are taken by length, so many of each, and a batch may be `most` long.

    One longer than `most` makes a batch of its own.

    >>> ends_of([3, 8, 30], [5, 1, 2], most=12)
    [4, 5, 6, 7, 8]
    """
    ends, first = [], 0
    edges = [0]
    for count in counts:
        edges.append(edges[-1] + count)
    for kind, (here, last) in zip(kinds, pairwise(edges), strict=True):
        room = most // kind if kind > 0 else edges[-1]
        while (stop := max(first + room, first + 1, here)) < last:
            ends.append(stop)
            first = here = stop
    return [*ends, edges[-1]] if edges[-1] else ends


def buckets(lengths: Sequence[int] | Tensor, most: int, *, seed: int, epoch: int) -> Buckets:
    """Batches of example numbers, alike in length, each of at most `most` tokens with its padding, in shuffled order.

    The order is a pure function of seed and epoch. An example longer than `most` makes a batch of its own.

    >>> list(buckets([3, 9, 3, 8], most=18, seed=0, epoch=0))
    [[2, 0], [3, 1]]
    """
    return Bucketing(lengths, most).epoch(seed=seed, number=epoch)
