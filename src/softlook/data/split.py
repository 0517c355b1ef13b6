"""A part of the data is held out, to see whether what was learnt also holds elsewhere."""

from bisect import insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from softlook.data.digest import content_digest
from softlook.data.examples import Example

SHARE, LEAST, MOST = 0.02, 1, 2000
WHOLE = 1 << 64


@dataclass(frozen=True)
class Split:
    """Examples whose content has a digest below an edge are held out: so equal examples are always on one side."""

    edge: int
    held_out: int
    """How many different examples that are."""

    def holds_out(self, example: Example) -> bool:
        """Whether an example is not to be learnt from."""
        return content_digest(example.key) < self.edge

    def train(self, examples: Iterable[Example]) -> Iterator[Example]:
        """What is to be learnt from."""
        return (example for example in examples if not self.holds_out(example))

    def validation(self, examples: Iterable[Example]) -> Iterator[Example]:
        """What is held out, each question once."""
        seen: set[int] = set()
        for example in examples:
            digest = content_digest(example.key)
            if digest < self.edge and digest not in seen:
                seen.add(digest)
                yield example


def make_split(examples: Iterable[Example], *, share: float = SHARE, least: int = LEAST, most: int = MOST) -> Split:
    """Hold out about a share of the different examples, but so many at least and at most. One is always left to learn.

    It depends on what the examples say, not on their order or on chance; more data move few from one side to the other.

    >>> from softlook.data.examples import Text
    >>> numbers = [Text(str(number)) for number in range(1000)]
    >>> split = make_split(numbers)
    >>> len(list(split.train(numbers))) + split.held_out, make_split(numbers[::-1]) == split
    (1000, True)
    """
    lowest = _lowest((content_digest(example.key) for example in examples), most + 1)
    if len(lowest) < 2:
        return Split(0, 0)
    edge = max(int(share * WHOLE), lowest[min(least, len(lowest) - 1) - 1] + 1) if least else int(share * WHOLE)
    edge = min(edge, lowest[-1])  # the most that may be held out, or all but one
    return Split(edge, sum(digest < edge for digest in lowest))


def _lowest(digests: Iterable[int], count: int) -> list[int]:
    """The lowest so many different numbers, in order."""
    lowest: list[int] = []
    kept: set[int] = set()
    for digest in digests:
        if digest in kept or (len(lowest) == count and digest > lowest[-1]):
            continue
        insort(lowest, digest)
        kept.add(digest)
        if len(lowest) > count:
            kept.discard(lowest.pop())
    return lowest
