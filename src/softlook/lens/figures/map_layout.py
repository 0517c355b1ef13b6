"""Layout and labels of a figure."""

import math
from dataclasses import dataclass

from softlook.lens.figures.text import shorten_label

MAX_NUMBERED = 16
"""Cells per side up to which each shows its number."""
NUMBERED_SIDE = 46
"""Side of a cell with a number."""
ROW_GAP = 40
"""Space between two rows of maps."""
LEGEND = 300
"""Width of the color scale."""
MAX_WIDTH = 1200
"""Default width of a figure: a page on a laptop screen."""


@dataclass(frozen=True)
class FigureLayout:
    """Coordinates of the parts of a figure, in pixels."""

    queries: tuple[str, ...]
    keys: tuple[str, ...]
    names: tuple[str, ...]
    title: str
    max_width: float = MAX_WIDTH
    """Maps that do not fit side by side continue in the next row; a single map may be wider."""

    @property
    def numbered(self) -> bool:
        """Whether each cell shows its number: in small maps of which two fit side by side."""
        is_small = max(len(self.queries), len(self.keys)) <= MAX_NUMBERED
        return is_small and (len(self.names) == 1 or 2 * len(self.keys) * NUMBERED_SIDE <= 0.8 * self.max_width)

    @property
    def side(self) -> int:
        return NUMBERED_SIDE if self.numbered else 22 if max(len(self.queries), len(self.keys)) <= 48 else 13

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
    def label_height(self) -> float:
        """Height of a map's name and key labels."""
        return 26 * any(self.names) + max(self.slant, 14) + 34

    @property
    def map_width(self) -> float:
        """Width of a map, with the gap after it."""
        return len(self.keys) * self.side + max(self.slant, 28)

    @property
    def row_height(self) -> float:
        """Height of a row of maps, with the gap below it."""
        return self.label_height + len(self.queries) * self.side + ROW_GAP

    @property
    def columns(self) -> int:
        """Number of maps side by side."""
        return max(1, min(len(self.names), int((self.max_width - self.left) // self.map_width)))

    @property
    def rows(self) -> int:
        return math.ceil(len(self.names) / self.columns)

    @property
    def bottom(self) -> float:
        return self.head + self.rows * self.row_height - ROW_GAP

    @property
    def width(self) -> int:
        return math.ceil(max(self.left + self.columns * self.map_width, self.left + LEGEND, 56 + 11 * len(self.title)))

    @property
    def height(self) -> int:
        return math.ceil(self.bottom + 62)

    def x(self, number: int) -> float:
        """Left edge of a map."""
        return self.left + number % self.columns * self.map_width

    def y(self, number: int) -> float:
        """Top edge of a map, without its labels."""
        return self.head + number // self.columns * self.row_height + self.label_height
