"""Layout and labels of a figure."""

import math
from dataclasses import dataclass

MAX_NUMBERED = 16
"""Cells per side up to which each shows its number."""
LEGEND = 300
"""Width of the color scale."""


@dataclass(frozen=True)
class FigureLayout:
    """Coordinates of the parts of a figure, in pixels."""

    queries: tuple[str, ...]
    keys: tuple[str, ...]
    names: tuple[str, ...]
    title: str

    @property
    def numbered(self) -> bool:
        """Whether each cell shows its number."""
        return max(len(self.queries), len(self.keys)) <= MAX_NUMBERED

    @property
    def side(self) -> int:
        return 46 if self.numbered else 22 if max(len(self.queries), len(self.keys)) <= 48 else 13

    @property
    def size(self) -> int:
        """Font size of the labels."""
        return min(14, self.side - 4)

    @property
    def slant(self) -> float:
        """Height of slanted key labels; 0 where they fit horizontally."""
        longest = 0.62 * self.size * max(len(shorten_label(key)) for key in self.keys)
        return 0.71 * longest + 8 if longest > self.side - 2 else 0

    @property
    def left(self) -> float:
        return 36 + max(0.62 * self.size * max(len(shorten_label(query)) for query in self.queries), 88)

    @property
    def head(self) -> int:
        """Bottom of the title."""
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
        """Left edge of a map."""
        return self.left + number * (len(self.keys) * self.side + max(self.slant, 28))


def visible_label(label: str) -> str:
    """Make control characters, outer spaces and invisible marks of a label visible.

    >>> print(visible_label(" to\\n"), visible_label("a\\u202eb"))
    ␣to\\n a\\u202eb
    """
    start, stop = len(label) - len(label.lstrip(" ")), len(label.rstrip(" "))
    seen = [c if start <= n < stop or c != " " else "␣" for n, c in enumerate(label)]
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in seen)


def shorten_label(label: str) -> str:
    """Truncate a label to 16 characters."""
    return label if len(label) <= 16 else label[:15] + "…"
