"""The page of a figure: what its labels say, and where everything stands."""

import math
from dataclasses import dataclass

NUMBERED = 16
"""Squares a side up to which there is room for a number in each."""
LEGEND = 300
"""How wide the legend is."""


@dataclass(frozen=True)
class Page:
    """Where everything stands, in pixels."""

    queries: tuple[str, ...]
    keys: tuple[str, ...]
    names: tuple[str, ...]
    title: str

    @property
    def numbered(self) -> bool:
        """Is there room for a number in each square?"""
        return max(len(self.queries), len(self.keys)) <= NUMBERED

    @property
    def side(self) -> int:
        return 46 if self.numbered else 22 if max(len(self.queries), len(self.keys)) <= 48 else 13

    @property
    def size(self) -> int:
        """Of the labels' letters."""
        return min(14, self.side - 4)

    @property
    def slant(self) -> float:
        """How far slanted key labels rise and lean to the right; 0 where they fit side by side."""
        longest = 0.62 * self.size * max(len(short(key)) for key in self.keys)
        return 0.71 * longest + 8 if longest > self.side - 2 else 0

    @property
    def left(self) -> float:
        return 36 + max(0.62 * self.size * max(len(short(query)) for query in self.queries), 88)

    @property
    def head(self) -> int:
        """Below the title."""
        return 64 if self.title else 28

    @property
    def top(self) -> float:
        return self.head + 26 * any(self.names) + max(self.slant, 14) + 34

    @property
    def bottom(self) -> float:
        return self.top + len(self.queries) * self.side

    @property
    def width(self) -> int:
        return math.ceil(max(self.x(len(self.names)), self.left + LEGEND, 56 + 11 * len(self.title)))

    @property
    def height(self) -> int:
        return math.ceil(self.bottom + 62)

    def x(self, number: int) -> float:
        """Where a map begins."""
        return self.left + number * (len(self.keys) * self.side + max(self.slant, 28))


def shown(label: str) -> str:
    """A label with nothing hidden in it: control characters, outer spaces and unseen marks become visible.

    >>> print(shown(" to\\n"), shown("a\\u202eb"))
    ␣to\\n a\\u202eb
    """
    start, stop = len(label) - len(label.lstrip(" ")), len(label.rstrip(" "))
    seen = [c if start <= n < stop or c != " " else "␣" for n, c in enumerate(label)]
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in seen)


def short(label: str) -> str:
    """A label cut to what there is room for."""
    return label if len(label) <= 16 else label[:15] + "…"
