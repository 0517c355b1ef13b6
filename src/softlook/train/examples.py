"""Lists of ids into batches of tensors, one small value for each thing that can be learned."""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from softlook.losses import NOTHING

Ids = Sequence[int]
Join = Callable[[Ids, Ids], tuple[list[int], list[int]]]
"""Ids of a text and of a second one, which may be empty -> both with special tokens around them, and token type ids."""


@dataclass(frozen=True)
class Pairs:
    """A source, and the target it is to be turned into: what is said so far goes in, what comes next is asked."""

    source: Int[Tensor, "B S"]
    source_present: Bool[Tensor, "B S"]
    said: Int[Tensor, "B T"]
    wanted: Int[Tensor, "B T"]


@dataclass(frozen=True)
class Rows:
    """Documents packed into rows: what is read, what comes next, and which document each place belongs to."""

    ids: Int[Tensor, "B T"]
    wanted: Int[Tensor, "B T"]
    documents: Int[Tensor, "B T"]
    positions: Int[Tensor, "B T"]


@dataclass(frozen=True)
class Gaps:
    """Texts with hidden words, and whether the second sentence followed the first."""

    ids: Int[Tensor, "B T"]
    present: Bool[Tensor, "B T"]
    segments: Int[Tensor, "B T"]
    wanted: Int[Tensor, "B T"]
    follows: Int[Tensor, " B"]


@dataclass(frozen=True)
class Labels:
    """Texts, alone or in pairs, and the class of each."""

    ids: Int[Tensor, "B T"]
    present: Bool[Tensor, "B T"]
    segments: Int[Tensor, "B T"]
    wanted: Int[Tensor, " B"]


def padded(rows: Sequence[Ids], fill: int = 0, *, multiple: int = 1) -> Int[Tensor, "B T"]:
    """Rows of different lengths, filled up on the right.

    >>> padded([[1, 2], [3]], fill=9)
    tensor([[1, 2],
            [3, 9]])
    """
    longest = _up(max(map(len, rows), default=0), multiple)
    if not longest:
        return torch.empty(len(rows), 0, dtype=torch.long)
    flat = array("q", [fill]) * (len(rows) * longest)  # nested lists would take torch three times as long
    for number, row in enumerate(rows):
        flat[number * longest : number * longest + len(row)] = array("q", row)
    return torch.frombuffer(flat, dtype=torch.long).view(len(rows), longest)


def there(rows: Sequence[Ids], *, multiple: int = 1) -> Bool[Tensor, "B T"]:
    """Where there is a token.

    >>> there([[1, 2], [3]])
    tensor([[ True,  True],
            [ True, False]])
    """
    lengths = torch.tensor([len(row) for row in rows])
    return torch.arange(_up(max(map(len, rows), default=0), multiple)) < lengths[:, None]


def _up(length: int, multiple: int) -> int:
    return -(-length // multiple) * multiple


def pairs(examples: Sequence[tuple[Ids, Ids]], *, begin: int, end: int, pad: int = 0, multiple: int = 1) -> Pairs:
    """Sources end with `end`; targets are said from `begin` on, and asked for up to `end`.

    Lengths are filled up to a `multiple`: some kernels of a GPU are made anew for every length they meet.

    >>> pairs([([5, 6], [7])], begin=1, end=2).wanted
    tensor([[7, 2]])
    """
    sources = [[*source, end] for source, _ in examples]
    said = [[begin, *target] for _, target in examples]
    wanted = [[*target, end] for _, target in examples]
    up = partial(padded, multiple=multiple)
    return Pairs(up(sources, pad), there(sources, multiple=multiple), up(said, pad), up(wanted, NOTHING))


def labelled(examples: Sequence[tuple[Ids, Ids, int]], *, join: Join, room: int, pad: int = 0) -> Labels:
    """Texts, alone or in pairs, with special tokens around them; without these, a row has at most `room` tokens.

    >>> labelled([([5, 6], [], 1)], join=lambda one, other: ([3, *one, 4], [0] * (len(one) + 2)), room=8).ids
    tensor([[3, 5, 6, 4]])
    """
    joined = [join(*shortened(one, other, room)) for one, other, _ in examples]
    rows, sides = [ids for ids, _ in joined], [segments for _, segments in joined]
    return Labels(padded(rows, pad), there(rows), padded(sides), torch.tensor([label for *_, label in examples]))


def shortened(one: Ids, other: Ids, room: int) -> tuple[Ids, Ids]:
    """Two texts cut to fit together; the longer one gives way first.

    >>> shortened([1, 2, 3, 4, 5], [6, 7], 5)
    ([1, 2, 3], [6, 7])
    """
    shorter = min(len(one), len(other), room // 2)
    if len(one) >= len(other):
        return one[: max(room - len(other), room - shorter)], other[: max(room - len(one), shorter)]
    return one[: max(room - len(other), shorter)], other[: max(room - len(one), room - shorter)]
