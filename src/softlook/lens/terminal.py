"""Attention maps as heat maps in a terminal."""

import math
from collections.abc import Mapping, Sequence

from jaxtyping import Float
from rich.cells import cell_len, set_cell_size
from rich.text import Text
from torch import Tensor

from softlook.lens.figures.color import STEPS, colormap, text_color
from softlook.lens.figures.text import visible_label

CELL, GAP = 2, 2
"""Width of a cell, and of the space between two maps, in characters."""
MAX_QUERY_LABEL, MAX_KEY_LABEL = 14, 10
RAMP = " .:-=+*#%@"
"""Weights from 0 to the largest, without color."""


def terminal_maps(
    maps: Mapping[str, Float[Tensor, "T S"]],
    *,
    queries: Sequence[str],
    keys: Sequence[str],
    width: int = 80,
    color: bool = True,
) -> Text:
    """Draw attention maps as text: rows are queries, columns are keys, all maps on one scale.

    Maps are drawn side by side as far as `width`, in characters, allows; a map that is wider is split into several
    blocks of keys. Without `color`, cells are ASCII characters.

    >>> import torch
    >>> weights = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    >>> print(terminal_maps({"head 0": weights}, queries=["a", "b"], keys=["a", "b"], color=False))
      head 0
      a b
    a @@
    b ++++
    <BLANKLINE>
      weight: ' ' 0   '@' 1.000
    """
    rows = [_shorten(visible_label(query), MAX_QUERY_LABEL) for query in queries]
    margin = max(map(cell_len, rows)) + 1
    columns = max(1, (width - margin) // CELL)
    max_weight = max((weights.max().item() for weights in maps.values()), default=0.0)
    blocks = [
        _Block(visible_label(name), list(keys[start : start + columns]), weights[:, start : start + columns].tolist())
        for name, weights in maps.items()
        for start in range(0, len(keys), columns)
    ]
    text = Text(no_wrap=True, overflow="ignore")
    for line in _arrange(blocks, width - margin):
        _append_line(text, rows, line, margin, max_weight, color)
    return text.append(_legend(margin, max_weight, color))


class _Block:
    """Some columns of a map."""

    def __init__(self, name: str, keys: list[str], weights: list[list[float]]) -> None:
        self.name, self.weights = name, weights
        self.labels = [_shorten(visible_label(key), MAX_KEY_LABEL) for key in keys]
        self.width = max(CELL * len(keys), cell_len(name))


def _arrange(blocks: Sequence[_Block], width: int) -> list[list[_Block]]:
    """Blocks in lines of at most this width."""
    lines: list[list[_Block]] = []
    used = 0
    for block in blocks:
        if lines and used + GAP + block.width <= width:
            lines[-1].append(block)
            used += GAP + block.width
        else:
            lines.append([block])
            used = block.width
    return lines


def _append_line(
    text: Text, rows: Sequence[str], blocks: Sequence[_Block], margin: int, max_weight: float, color: bool
) -> None:
    """Append a line of blocks: names, key labels written downwards, and cells."""
    gap = " " * GAP
    names = gap.join(set_cell_size(block.name, block.width) for block in blocks)
    text.append(" " * margin + names.rstrip() + "\n", style="bold" if color else "")
    height = max(len(label) for block in blocks for label in block.labels)
    for index in range(height):
        letters = (_letters(block, index, height) for block in blocks)
        text.append(" " * margin + gap.join(letters).rstrip() + "\n", style="dim" if color else "")
    for row, query in enumerate(rows):
        text.append(set_cell_size(query, margin), style="dim" if color else "")
        line = Text(end="")
        for number, block in enumerate(blocks):
            line.append(gap * (number > 0))
            for weight in block.weights[row]:
                line.append(*_cell(weight, max_weight, color))
            line.append(" " * (block.width - CELL * len(block.labels)))
        if not color:
            line.rstrip()
        text.append_text(line).append("\n")
    text.append("\n")


def _letters(block: _Block, index: int, height: int) -> str:
    """One line of the key labels, which end above their columns."""
    letters = (set_cell_size(label.rjust(height)[index], CELL) for label in block.labels)
    return set_cell_size("".join(letters), block.width)


def _cell(weight: float, max_weight: float, color: bool) -> tuple[str, str]:
    """The characters of a cell, and their style."""
    if math.isnan(weight):
        return "??", "bold red" if color else ""
    fraction = weight / max_weight if max_weight > 0 else 0.0
    if color:
        return " " * CELL, f"on {colormap(round(STEPS * fraction), dark=True)}"
    density = 0 if weight == 0 else min(1 + int(fraction * (len(RAMP) - 1)), len(RAMP) - 1)  # blank is exactly zero
    return RAMP[density] * CELL, ""


def _legend(margin: int, max_weight: float, color: bool) -> Text:
    text = Text(" " * margin + "weight: ")
    if not color:
        return text.append(f"{RAMP[0]!r} 0   {RAMP[-1]!r} {max_weight:.3f}")
    text.append("0 ")
    for step in range(0, STEPS + 1, 4):
        fill = colormap(step, dark=True)
        text.append(" ", style=f"{text_color(fill)} on {fill}")
    return text.append(f" {max_weight:.3f}")


def _shorten(label: str, length: int) -> str:
    return label if len(label) <= length else label[: length - 1] + "…"
